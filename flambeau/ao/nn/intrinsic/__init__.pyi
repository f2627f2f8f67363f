# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import modules as modules
from . import qat as qat
from . import quantized as quantized
from .modules import BNReLU2d as BNReLU2d
from .modules import BNReLU3d as BNReLU3d
from .modules import ConvAdd2d as ConvAdd2d
from .modules import ConvAddReLU2d as ConvAddReLU2d
from .modules import ConvBn1d as ConvBn1d
from .modules import ConvBn2d as ConvBn2d
from .modules import ConvBn3d as ConvBn3d
from .modules import ConvBnReLU1d as ConvBnReLU1d
from .modules import ConvBnReLU2d as ConvBnReLU2d
from .modules import ConvBnReLU3d as ConvBnReLU3d
from .modules import ConvReLU1d as ConvReLU1d
from .modules import ConvReLU2d as ConvReLU2d
from .modules import ConvReLU3d as ConvReLU3d
from .modules import LinearBn1d as LinearBn1d
from .modules import LinearLeakyReLU as LinearLeakyReLU
from .modules import LinearReLU as LinearReLU
from .modules import LinearTanh as LinearTanh
from .modules import __all__ as __all__
from .modules.fused import _FusedModule as _FusedModule

