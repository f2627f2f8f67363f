"""Quantization: models whose weights and activations are 8-bit numbers.

>>> model.qconfig = get_default_qconfig("x86")
>>> prepared = prepare(model)             # observers are put in
>>> prepared(calibration_data)            # and look
>>> quantized = convert(prepared)         # layers become their quantized forms

`quantize_dynamic(model)` needs no data; `quantize_fx` has the same for traced models; docs/quantization.md tells more.
"""

# ruff: noqa: F401
from typing import Any

from ...core import naming as _naming
from .fake_quantize import *
from .fuse_modules import fuse_modules as fuse_modules
from .fuse_modules import fuse_modules_qat as fuse_modules_qat
from .fuser_method_mappings import *
from .observer import *
from .qconfig import *
from .qconfig_mapping import *
from .quant_type import *
from .quantization_mappings import *
from .quantize import *
from .stubs import *

ObserverOrFakeQuantize = ObserverBase | FakeQuantizeBase
_HOMES = {
    **dict.fromkeys(
        (
            "convert_fx", "convert_to_reference_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx", "Scope", "ScopeContextManager",
            "_convert_to_reference_decomposed_fx",
        ),
        "quantize_fx",
    ),
    "BackendConfig": "backend_config",
}  # fmt: skip


def default_eval_fn(model: Any, calib_data: Any) -> None:
    """Call the model with each batch of data and labels: a `run_fn` for `quantize`."""
    for data, _ in calib_data:
        model(data)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(_naming.submodule(__name__, _HOMES[name]), name)
    return _naming.submodule(__name__, name)
