"""`complete_box_iou_loss`, under the name of its file in torchvision."""

from ._losses import complete_box_iou_loss

__all__ = ["complete_box_iou_loss"]
