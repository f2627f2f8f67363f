"""Models with torchvision's names, parameters and initial weights.

>>> from flambeau.vision import models
>>> model = models.resnet18(num_classes=10)
"""

# ruff: noqa: F401 - re-exports

from ...core import naming as _naming
from . import detection, optical_flow, segmentation, video
from ._api import *
from .alexnet import *
from .convnext import *
from .densenet import *
from .efficientnet import *
from .googlenet import *
from .inception import *
from .maxvit import *
from .mnasnet import *
from .mobilenetv2 import *
from .mobilenetv3 import *
from .regnet import *
from .resnet import *
from .shufflenetv2 import *
from .squeezenet import *
from .swin_transformer import *
from .vgg import *
from .vision_transformer import *


def __getattr__(name: str):
    """Import models that need flambeau.fx and flambeau.ao when they are first used."""
    if name in ("feature_extraction", "quantization"):
        return _naming.submodule(__name__, name)
    raise _naming.no_attribute(__name__, name)
