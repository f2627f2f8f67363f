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

from .. import return_types as _results
from ..core.device import device as _device
from ..core.dtype import dtype as _dtype
from ..core.generator import Generator as _Generator
from ..core.layout import layout as _layout
from ..core.layout import memory_format as _memory_format
from ..core.quantized import qscheme as _qscheme
from ..core.size import Size as _Size
from ..core.tensor import Tensor as _Tensor
from ..core.typed_storage import TypedStorage as _TypedStorage

_Number = _int | _float | _bool | _complex
_Ints = _int | Sequence[_int]
_DeviceLike = _device | _str | _int

from . import api as api
from . import duals as duals
from . import engine as engine
from . import forward_ad as forward_ad
from . import function as function
from . import function_forward as function_forward
from . import functional as functional
from . import grad_mode as grad_mode
from . import graph as graph
from . import jacobians as jacobians
from . import profiler as profiler
from . import profiler_metadata as profiler_metadata
from . import profiler_ops as profiler_ops
from . import profiler_python as profiler_python
from . import profiler_recorder as profiler_recorder
from . import profiler_results as profiler_results
from . import profiler_settings as profiler_settings
from . import profiler_table as profiler_table
from . import profiler_tree as profiler_tree
from . import profiler_util as profiler_util
from . import variable as variable
from ..autograd.profiler import ProfilerConfig as ProfilerConfig
from ..autograd.profiler import _disable_profiler as _disable_profiler
from ..autograd.profiler import _profiler_enabled as _profiler_enabled
from ..autograd.profiler_settings import DeviceType as DeviceType
from ..autograd.profiler_settings import ProfilerActivity as ProfilerActivity
from ..autograd.profiler_settings import ProfilerState as ProfilerState
from ..autograd.profiler_settings import kineto_available as kineto_available
from ..core.naming import submodule as submodule
from .api import backward as backward
from .api import bind as bind
from .api import grad as grad
from .function import Function as Function
from .function import FunctionCtx as FunctionCtx
from .function import NestedIOFunction as NestedIOFunction
from .function import once_differentiable as once_differentiable
from .grad_mode import detect_anomaly as detect_anomaly
from .grad_mode import enable_grad as enable_grad
from .grad_mode import inference_mode as inference_mode
from .grad_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from .grad_mode import is_anomaly_enabled as is_anomaly_enabled
from .grad_mode import is_grad_enabled as is_grad_enabled
from .grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from .grad_mode import is_multithreading_enabled as is_multithreading_enabled
from .grad_mode import no_grad as no_grad
from .grad_mode import set_detect_anomaly as set_detect_anomaly
from .grad_mode import set_grad_enabled as set_grad_enabled
from .grad_mode import set_multithreading_enabled as set_multithreading_enabled
from .gradcheck import GradcheckError as GradcheckError
from .gradcheck import gradcheck as gradcheck
from .gradcheck import gradgradcheck as gradgradcheck
from .variable import Variable as Variable

