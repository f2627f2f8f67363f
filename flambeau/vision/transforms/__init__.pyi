# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import bool as _bool
from builtins import complex as _complex
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, NoReturn, overload

from ... import return_types as _results
from ...core.device import device as _device
from ...core.dtype import dtype as _dtype
from ...core.generator import Generator as _Generator
from ...core.layout import layout as _layout
from ...core.layout import memory_format as _memory_format
from ...core.quantized import qscheme as _qscheme
from ...core.size import Size as _Size
from ...core.tensor import Tensor as _Tensor
from ...core.typed_storage import TypedStorage as _TypedStorage

_Number = _int | _float | _bool | _complex
_Ints = _int | Sequence[_int]
_DeviceLike = _device | _str | _int

from . import _presets as _presets
from . import arguments as arguments
from . import autoaugment as autoaugment
from . import basic as basic
from . import draws as draws
from . import functional as functional
from . import geometric as geometric
from . import interpolation as interpolation
from . import kernels as kernels
from . import photometric as photometric
from . import policies as policies
from . import transforms as transforms
from . import v2 as v2
from .autoaugment import AugMix as AugMix
from .autoaugment import AutoAugment as AutoAugment
from .autoaugment import AutoAugmentPolicy as AutoAugmentPolicy
from .autoaugment import RandAugment as RandAugment
from .autoaugment import TrivialAugmentWide as TrivialAugmentWide
from .basic import Compose as Compose
from .basic import ConvertImageDtype as ConvertImageDtype
from .basic import Lambda as Lambda
from .basic import LinearTransformation as LinearTransformation
from .basic import Normalize as Normalize
from .basic import PILToTensor as PILToTensor
from .basic import RandomApply as RandomApply
from .basic import RandomChoice as RandomChoice
from .basic import RandomOrder as RandomOrder
from .basic import ToPILImage as ToPILImage
from .basic import ToTensor as ToTensor
from .geometric import CenterCrop as CenterCrop
from .geometric import ElasticTransform as ElasticTransform
from .geometric import FiveCrop as FiveCrop
from .geometric import Pad as Pad
from .geometric import RandomAffine as RandomAffine
from .geometric import RandomCrop as RandomCrop
from .geometric import RandomHorizontalFlip as RandomHorizontalFlip
from .geometric import RandomPerspective as RandomPerspective
from .geometric import RandomResizedCrop as RandomResizedCrop
from .geometric import RandomRotation as RandomRotation
from .geometric import RandomVerticalFlip as RandomVerticalFlip
from .geometric import Resize as Resize
from .geometric import TenCrop as TenCrop
from .interpolation import InterpolationMode as InterpolationMode
from .photometric import ColorJitter as ColorJitter
from .photometric import GaussianBlur as GaussianBlur
from .photometric import Grayscale as Grayscale
from .photometric import RandomAdjustSharpness as RandomAdjustSharpness
from .photometric import RandomAutocontrast as RandomAutocontrast
from .photometric import RandomEqualize as RandomEqualize
from .photometric import RandomErasing as RandomErasing
from .photometric import RandomGrayscale as RandomGrayscale
from .photometric import RandomInvert as RandomInvert
from .photometric import RandomPosterize as RandomPosterize
from .photometric import RandomSolarize as RandomSolarize

