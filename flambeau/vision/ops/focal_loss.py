"""`sigmoid_focal_loss`, under the name of its file in torchvision."""

from ._losses import sigmoid_focal_loss

__all__ = ["sigmoid_focal_loss"]
