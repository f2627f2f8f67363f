"""`import torch` returns Flambeau, which is not imported before, so that Python starts as fast as without it.

Plain code without annotations, because any Python 3 may read this file when it starts.
"""

import importlib.machinery
import os
import sys

NAMES = ("torch", "torchvision")
OLDEST = (3, 10)  # the oldest Python that Flambeau runs on


class TorchLater:
    """Finder of torch and torchvision: the first import of one installs Flambeau as them."""

    def find_spec(self, name, path=None, target=None):
        if name not in NAMES:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin="flambeau")  # type: ignore[arg-type]  # a loader by its methods

    def create_module(self, spec):
        spec.loader = _posing().alias_of(spec.name).loader  # which does what follows, too
        return spec.loader.create_module(spec)

    def exec_module(self, module):
        """Never called: `create_module` has replaced this loader by another one."""
        raise ImportError("torch is loaded by Flambeau's own loader")

    def find_distributions(self, context=None):
        """Answer `importlib.metadata.version("torch")`."""
        return _posing().distributions(context) if getattr(context, "name", None) in NAMES else []


def _posing():
    """Return Flambeau's module `posing`, after it has installed itself as torch: from the package that this file belongs to, which need not
    be on the module path."""
    root = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4))
    sys.path.insert(0, root)
    try:
        from flambeau.compat.as_torch import posing  # noqa: PLC0415  laziness is the point
    finally:
        sys.path.remove(root)
    posing.install_as_torch()
    return posing


def come_first():
    """Make torch mean Flambeau from now on, even if the real one is installed."""
    if sys.version_info >= OLDEST and not isinstance(sys.meta_path[0], TorchLater):
        sys.meta_path.insert(0, TorchLater())
