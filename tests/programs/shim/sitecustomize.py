"""Lets the real torchvision be imported beside a CPU build of PyTorch, where its compiled operators do not load: their names are
declared just before the import. Only for the processes that tests start with the real PyTorch."""

import importlib.machinery
import sys

_OPERATORS = (
    "nms qnms roi_align qroi_align _roi_align_backward ps_roi_align _ps_roi_align_backward roi_pool _roi_pool_backward"
    " ps_roi_pool _ps_roi_pool_backward deform_conv2d _deform_conv2d_backward"
)
_kept = []


class _BeforeTorchvision:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision" and not _kept:
            import torch

            library = torch.library.Library("torchvision", "FRAGMENT")
            _kept.append(library)
            for operator in _OPERATORS.split():
                library.define(f"{operator}(Tensor input) -> Tensor")
            return importlib.machinery.PathFinder.find_spec(name, path, target)
        return None


sys.meta_path.insert(0, _BeforeTorchvision())
