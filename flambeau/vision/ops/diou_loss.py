"""`distance_box_iou_loss`, under the name of its file in torchvision."""

from ._losses import distance_box_iou_loss

__all__ = ["distance_box_iou_loss"]
