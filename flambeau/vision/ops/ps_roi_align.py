"""`ps_roi_align`, under the name of its file in torchvision."""

from .roi_align import PSRoIAlign, ps_roi_align

__all__ = ["PSRoIAlign", "ps_roi_align"]
