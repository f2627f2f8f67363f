"""Models with torchvision's names that can be quantized: their sums and concatenations are modules, which can be observed.

>>> from flambeau.vision.models import quantization
>>> model = quantization.shufflenet_v2_x0_5(num_classes=4)
>>> model.eval().fuse_model()
"""

# ruff: noqa: F403 - re-exports

from .googlenet import *
from .inception import *
from .mobilenetv2 import *
from .mobilenetv3 import *
from .resnet import *
from .shufflenetv2 import *
