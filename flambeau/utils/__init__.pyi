# Written by `python -m flambeau.utils.stubs` from the operators' records. Do not change it by hand.
# From builtins by name: int, float and bool are dtypes in some of these namespaces.
from builtins import str as _str
from typing import Any

from . import _python_dispatch as _python_dispatch
from . import _pytree as _pytree
from . import _triton as _triton
from . import _wrapper_gradients as _wrapper_gradients
from . import benchmark as benchmark
from . import build_jobs as build_jobs
from . import checkpoint as checkpoint
from . import collect_env as collect_env
from . import cpp_extension as cpp_extension
from . import curves as curves
from . import data as data
from . import deterministic as deterministic
from . import dlpack as dlpack
from . import drawing as drawing
from . import flop_counter as flop_counter
from . import hooks as hooks
from . import im2rec as im2rec
from . import layered as layered
from . import mkldnn as mkldnn
from . import module_tracker as module_tracker
from . import mxnet as mxnet
from . import namespace_stubs as namespace_stubs
from . import picture as picture
from . import pillow as pillow
from . import progress as progress
from . import recordio as recordio
from . import selective_checkpoint as selective_checkpoint
from . import serialization as serialization
from . import stub_results as stub_results
from . import stubs as stubs
from . import tensorboard as tensorboard
from . import visdom as visdom
from . import weak as weak
from . import work as work
from ..core.exchange import swap_tensors as swap_tensors
from ..profiler import bottleneck as bottleneck
from ..utils.drawing import draw as draw
from .summary import summary as summary

cmake_prefix_path: _str
def set_module(obj: Any, mod: _str) -> None: ...
