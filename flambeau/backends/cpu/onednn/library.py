"""libdnnl: find it, load it on first use, and declare the part of its C API that Flambeau calls.

Numbers below are oneDNN's own enum values, unchanged in every 3.x release.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import os
import site
import sys
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.backends.cpu import threads
from flambeau.core import dtype as dtypes
from flambeau.core.locks import ONEDNN, new_lock

# the data types of matrix products and convolutions
DATA_TYPES = {d: d.dnnl for d in (dtypes.float16, dtypes.bfloat16, dtypes.float32)}

# propagation kinds, algorithms, format tags
FORWARD_TRAINING, FORWARD_INFERENCE = 64, 96
ELTWISE_RELU = 0x20
BINARY_ADD, BINARY_MUL = 0x1FFF0, 0x1FFF1
CONVOLUTION_DIRECT, DECONVOLUTION_DIRECT = 0x1, 0xA
FORMAT_ANY = 1

# execution arguments
ARG_SRC, ARG_DST, ARG_WEIGHTS, ARG_BIAS, ARG_SCRATCHPAD = 1, 17, 33, 41, 80
ARG_DIFF_SRC, ARG_DIFF_DST, ARG_DIFF_WEIGHTS, ARG_DIFF_BIAS = 129, 145, 161, 169
ARG_ATTR_SCALES, ARG_ATTR_ZERO_POINTS = 4096, 8192  # with the argument's own bits
# Operands of the steps after a product: the former times the step's number from 1, with the latter's bits.
ARG_POST_OP, ARG_SRC_1 = 32768, 2

# queries
QUERY_IMPL_NAME = 8
QUERY_SRC, QUERY_DIFF_SRC, QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS = 129, 130, 131, 132
QUERY_DST, QUERY_DIFF_DST, QUERY_SCRATCHPAD = 133, 134, 136

MAX_DIMS = 12
Dims = ctypes.c_int64 * MAX_DIMS

UNIMPLEMENTED = 3
_STATUS_NAMES = (
    "success", "out_of_memory", "invalid_arguments", "unimplemented", "last_impl_reached", "runtime_error",
    "not_required", "invalid_graph", "invalid_graph_op", "invalid_shape", "invalid_data_type",
)  # fmt: skip

_CPU_ENGINE, _IN_ORDER_STREAM, USER_SCRATCHPAD = 1, 1, 1
_FILE_NAMES = ("libdnnl.so.3", "libdnnl.3.dylib", "dnnl.dll")


@functools.cache
def words(count: int) -> Any:
    """Return an array type of 64-bit words. Two of them are a `dnnl_exec_arg_t`: the argument's number, then its memory object."""
    return ctypes.c_int64 * count


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


_ptr, _int, _out = ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
_dims, _i64, _f32 = ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_float
_window = (_dims,) * 4  # strides, dilations, padding before, padding after

_STATUS_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "engine_create": (_out, _int, ctypes.c_size_t),
    "stream_create": (_out, _ptr, ctypes.c_uint),
    "primitive_attr_create": (_out,),
    "primitive_attr_set_scratchpad_mode": (_ptr, _int),
    "primitive_attr_set_scales_mask": (_ptr, _int, _int),
    "primitive_attr_set_zero_points_mask": (_ptr, _int, _int),
    "primitive_attr_set_post_ops": (_ptr, _ptr),
    "primitive_attr_destroy": (_ptr,),
    "post_ops_create": (_out,),
    "post_ops_append_binary": (_ptr, _int, _ptr),
    "post_ops_append_eltwise": (_ptr, _int, _f32, _f32),
    "post_ops_append_sum": (_ptr, _f32, ctypes.c_int32, _int),
    "post_ops_destroy": (_ptr,),
    "memory_desc_clone": (_out, _ptr),
    "memory_desc_create_with_strides": (_out, _int, _dims, _int, _dims),
    "memory_desc_create_with_tag": (_out, _int, _dims, _int, _int),
    "memory_desc_destroy": (_ptr,),
    "memory_create": (_out, _ptr, _ptr, _ptr),
    "memory_set_data_handle": (_ptr, _ptr),
    "memory_destroy": (_ptr,),
    "primitive_desc_query": (_ptr, _int, _int, _ptr),
    "primitive_desc_next_impl": (_ptr,),
    "primitive_desc_destroy": (_ptr,),
    "primitive_create": (_out, _ptr),
    "primitive_execute": (_ptr, _ptr, _int, _ptr),
    "primitive_destroy": (_ptr,),
    "reorder_primitive_desc_create": (_out, _ptr, _ptr, _ptr, _ptr, _ptr),
    "matmul_primitive_desc_create": (_out, _ptr, _ptr, _ptr, _ptr, _ptr, _ptr),
    "convolution_forward_primitive_desc_create": (_out, _ptr, _int, _int, _ptr, _ptr, _ptr, _ptr, *_window, _ptr),
    "convolution_backward_data_primitive_desc_create": (_out, _ptr, _int, _ptr, _ptr, _ptr, *_window, _ptr, _ptr),
    "convolution_backward_weights_primitive_desc_create": (
        *(_out, _ptr, _int, _ptr, _ptr, _ptr, _ptr),
        *_window,
        *(_ptr, _ptr),
    ),
    "deconvolution_forward_primitive_desc_create": (_out, _ptr, _int, _int, _ptr, _ptr, _ptr, _ptr, *_window, _ptr),
    "set_verbose": (_int,),
    "sgemm": (*(ctypes.c_char, ctypes.c_char, _i64, _i64, _i64), *(_f32, _ptr, _i64, _ptr, _i64, _f32, _ptr, _i64)),
}

_VALUE_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "memory_desc_equal": (_int, _ptr, _ptr),
    "memory_desc_get_size": (ctypes.c_size_t, _ptr),
    "primitive_desc_query_md": (_ptr, _ptr, _int, _int),
}


# Held while the library is loaded or makes something: it keeps primitives in a cache with a lock of its own, and if a fork came
# meanwhile, that would stay locked in the child.
making = new_lock(ONEDNN)


class Library:
    """The loaded library: its functions under their names without the `dnnl_` prefix, one engine, one stream.

    The stream of a CPU engine is stateless (primitives run in the calling thread), so all threads share it.
    """

    def __init__(self, path: str):
        releasing = ctypes.CDLL(path)  # releases the GIL for the length of a call
        holding = ctypes.PyDLL(path)  # keeps it: right for calls shorter than a thread switch
        self.path = path
        self.version = _read_version(releasing, path)
        self.functions: dict[str, Callable[..., int]] = {}
        for name, argtypes in _STATUS_FUNCTIONS.items():
            short = name.startswith("memory_") or name.endswith(("_destroy", "_query"))
            self.functions[name] = _declare(holding if short else releasing, name, _int, argtypes)
        for name, (restype, *rest) in _VALUE_FUNCTIONS.items():
            self.functions[name] = _declare(holding, name, restype, rest)
        quick = _declare(holding, "memory_set_data_handle", _int, _STATUS_FUNCTIONS["memory_set_data_handle"])
        self.set_data_handle = quick
        self.execute = self.functions["primitive_execute"]
        self.execute_holding = _declare(holding, "primitive_execute", _int, _STATUS_FUNCTIONS["primitive_execute"])
        self.sgemm = self.functions["sgemm"]
        self.engine = self.create("engine_create", _CPU_ENGINE, 0)
        self.stream = self.create("stream_create", self.engine, _IN_ORDER_STREAM)
        # Scratchpads are ours: the library's own are tied to the thread that created the primitive.
        self.attributes = self.create("primitive_attr_create")
        self.call("primitive_attr_set_scratchpad_mode", self.attributes, USER_SCRATCHPAD)

    def call(self, name: str, *args: Any, about: str = "") -> None:
        """Call a function that returns a status; raise RuntimeError unless it is success."""
        with making:
            status = self.functions[name](*args)
        if status:
            raise failure(status, name, about)

    def create(self, name: str, *args: Any, about: str = "") -> int:
        """Call a function whose first argument receives a new object; return that object's address."""
        result = ctypes.c_void_p()
        self.call(name, ctypes.byref(result), *args, about=about)
        assert result.value is not None
        return result.value


def failure(status: int, function: str, about: str) -> RuntimeError:
    name = _STATUS_NAMES[status] if 0 <= status < len(_STATUS_NAMES) else f"status {status}"
    return RuntimeError(f"oneDNN: {function} returned {name}" + (f" for {about}" if about else ""))


def _declare(library: ctypes.CDLL, name: str, restype: Any, argtypes: Any) -> Callable[..., int]:
    function = getattr(library, "dnnl_" + name)
    function.restype, function.argtypes = restype, tuple(argtypes)
    return function


def _read_version(library: ctypes.CDLL, path: str) -> tuple[int, int, int]:
    query = library.dnnl_version
    query.restype, query.argtypes = ctypes.POINTER(_Version), ()
    found = query().contents
    version = (found.major, found.minor, found.patch)
    if version[0] != 3:
        raise OSError(f"{path} is oneDNN {'.'.join(map(str, version))}; Flambeau needs 3.x")
    return version


def _candidates() -> Iterator[str]:
    for root in dict.fromkeys((sys.prefix, sys.exec_prefix, site.getuserbase(), sys.base_prefix)):
        for folder in ("lib", os.path.join("Library", "bin")):
            for name in _FILE_NAMES:
                path = os.path.join(root, folder, name)
                if os.path.exists(path):
                    yield path
    yield from _installed_files()
    # Last, because it starts a subprocess or two (and its import costs 8 ms).
    found = importlib.import_module("ctypes.util").find_library("dnnl")
    if found is not None:
        yield found


def _installed_files() -> Iterator[str]:
    """Yield the files of an installed oneDNN wheel, wherever the installer put them (`pip install --target`, say)."""
    # Here because it costs 20 ms and is needed only where the library is in none of the usual places.
    metadata = importlib.import_module("importlib.metadata")
    for name in ("onednn-cpu-gomp", "onednn-cpu-iomp", "onednn"):
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue
        yield from (str(file.locate()) for file in files if file.name in _FILE_NAMES)


_loaded: Library | None = None
_problems: list[str] | None = None  # why loading failed, once it has been tried


def _load() -> Library | None:
    global _loaded, _problems
    with making:
        if _loaded is None and _problems is None:
            threads.library()  # first, because it tells libgomp how to wait before that loads
            problems = []
            for path in _candidates():
                try:
                    _loaded = Library(path)
                    break
                except (
                    OSError,
                    AttributeError,
                ) as error:  # wrong architecture, missing dependency, other major version
                    problems.append(f"{path}: {error}")
            _problems = problems
        return _loaded


def library() -> Library:
    """Return the loaded library; if there is none, raise a RuntimeError with the places that were searched."""
    found = _loaded or _load()
    if found is None:
        tried = "; ".join(_problems or []) or f"no {_FILE_NAMES[0]} under {sys.prefix} or the system's library folders"
        raise RuntimeError(f"oneDNN 3.x is not available (pip install onednn-cpu-gomp): {tried}")
    return found


def available() -> bool:
    """Return whether a usable libdnnl 3.x was found (loads it)."""
    return (_loaded or _load()) is not None


def version() -> tuple[int, int, int]:
    """Return the version of the loaded library, as (major, minor, patch)."""
    return library().version
