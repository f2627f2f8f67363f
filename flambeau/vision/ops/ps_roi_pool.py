"""`ps_roi_pool`, under the name of its file in torchvision."""

from .roi_pool import PSRoIPool, ps_roi_pool

__all__ = ["PSRoIPool", "ps_roi_pool"]
