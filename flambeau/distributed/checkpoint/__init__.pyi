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

from . import _async_executor as _async_executor
from . import _consolidate_hf_safetensors as _consolidate_hf_safetensors
from . import _dedup_save_plans as _dedup_save_plans
from . import _dedup_tensors as _dedup_tensors
from . import _extension as _extension
from . import _fsspec_filesystem as _fsspec_filesystem
from . import _hf_utils as _hf_utils
from . import _nested_dict as _nested_dict
from . import _places as _places
from . import _state_dict_names as _state_dict_names
from . import _state_dict_optim as _state_dict_optim
from . import _storage_utils as _storage_utils
from . import _traverse as _traverse
from . import _version as _version
from . import api as api
from . import default_planner as default_planner
from . import filesystem as filesystem
from . import format_utils as format_utils
from . import hf_storage as hf_storage
from . import metadata as metadata
from . import metadata_file as metadata_file
from . import optimizer as optimizer
from . import planner as planner
from . import planner_helpers as planner_helpers
from . import quantized_hf_storage as quantized_hf_storage
from . import resharding as resharding
from . import staging as staging
from . import state_dict as state_dict
from . import state_dict_loader as state_dict_loader
from . import state_dict_saver as state_dict_saver
from . import stateful as stateful
from . import storage as storage
from . import utils as utils
from .api import CheckpointException as CheckpointException
from .default_planner import DefaultLoadPlanner as DefaultLoadPlanner
from .default_planner import DefaultSavePlanner as DefaultSavePlanner
from .filesystem import FileSystemReader as FileSystemReader
from .filesystem import FileSystemWriter as FileSystemWriter
from .hf_storage import HuggingFaceStorageReader as HuggingFaceStorageReader
from .hf_storage import HuggingFaceStorageWriter as HuggingFaceStorageWriter
from .metadata import BytesStorageMetadata as BytesStorageMetadata
from .metadata import ChunkStorageMetadata as ChunkStorageMetadata
from .metadata import Metadata as Metadata
from .metadata import TensorStorageMetadata as TensorStorageMetadata
from .planner import LoadPlan as LoadPlan
from .planner import LoadPlanner as LoadPlanner
from .planner import ReadItem as ReadItem
from .planner import SavePlan as SavePlan
from .planner import SavePlanner as SavePlanner
from .planner import WriteItem as WriteItem
from .state_dict_loader import load as load
from .state_dict_loader import load_state_dict as load_state_dict
from .state_dict_saver import async_save as async_save
from .state_dict_saver import save as save
from .state_dict_saver import save_state_dict as save_state_dict
from .storage import StorageReader as StorageReader
from .storage import StorageWriter as StorageWriter

