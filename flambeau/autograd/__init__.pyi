# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.

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
from . import profiler_util as profiler_util
from . import variable as variable
from ..core.naming import submodule as submodule
from ..profiler.session import ProfilerConfig as ProfilerConfig
from ..profiler.session import _disable_profiler as _disable_profiler
from ..profiler.session import _profiler_enabled as _profiler_enabled
from ..profiler.settings import DeviceType as DeviceType
from ..profiler.settings import ProfilerActivity as ProfilerActivity
from ..profiler.settings import ProfilerState as ProfilerState
from ..profiler.settings import kineto_available as kineto_available
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

