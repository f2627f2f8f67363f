"""`generalized_box_iou_loss`, under the name of its file in torchvision."""

from ._losses import generalized_box_iou_loss

__all__ = ["generalized_box_iou_loss"]
