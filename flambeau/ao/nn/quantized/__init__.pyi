# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

from . import dynamic as dynamic
from . import functional as functional
from . import modules as modules
from . import reference as reference
from ....ao.nn.quantized.modules.rnn import LSTM as LSTM
from ....ao.nn.quantized.modules.rnn import MultiheadAttention as MultiheadAttention
from .modules import BatchNorm2d as BatchNorm2d
from .modules import BatchNorm3d as BatchNorm3d
from .modules import Conv1d as Conv1d
from .modules import Conv2d as Conv2d
from .modules import Conv3d as Conv3d
from .modules import ConvTranspose1d as ConvTranspose1d
from .modules import ConvTranspose2d as ConvTranspose2d
from .modules import ConvTranspose3d as ConvTranspose3d
from .modules import DeQuantize as DeQuantize
from .modules import Dropout as Dropout
from .modules import ELU as ELU
from .modules import Embedding as Embedding
from .modules import EmbeddingBag as EmbeddingBag
from .modules import FXFloatFunctional as FXFloatFunctional
from .modules import FloatFunctional as FloatFunctional
from .modules import GroupNorm as GroupNorm
from .modules import Hardswish as Hardswish
from .modules import InstanceNorm1d as InstanceNorm1d
from .modules import InstanceNorm2d as InstanceNorm2d
from .modules import InstanceNorm3d as InstanceNorm3d
from .modules import LayerNorm as LayerNorm
from .modules import LeakyReLU as LeakyReLU
from .modules import Linear as Linear
from .modules import MaxPool2d as MaxPool2d
from .modules import PReLU as PReLU
from .modules import QFunctional as QFunctional
from .modules import Quantize as Quantize
from .modules import ReLU6 as ReLU6
from .modules import Sigmoid as Sigmoid
from .modules import Softmax as Softmax

