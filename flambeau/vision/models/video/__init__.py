"""Video classification: ResNets of three-dimensional convolutions, S3D, MViT, Swin Transformer.

>>> from flambeau.vision.models import video
>>> model = video.r3d_18(num_classes=5)
"""

# ruff: noqa: F403 - re-exports

from .mvit import *
from .resnet import *
from .s3d import *
from .swin_transformer import *
