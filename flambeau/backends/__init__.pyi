# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import str as _str

from . import compiled as compiled
from . import cpu as cpu
from . import cuda as cuda
from . import cudnn as cudnn
from . import cusparselt as cusparselt
from . import kleidiai as kleidiai
from . import mha as mha
from . import mkl as mkl
from . import mkldnn as mkldnn
from . import mps as mps
from . import nnpack as nnpack
from . import nvidia as nvidia
from . import openmp as openmp
from . import opt_einsum as opt_einsum
from . import quantized as quantized
from ..core.backend import Backend as Backend
from ..core.backend import register as register

fp32_precision: _str
