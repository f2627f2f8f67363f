"""QConfig: the observers of activations and weights, and the defaults for each engine."""

from __future__ import annotations

import functools
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ... import nn
from ...core import naming
from .fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
    default_dynamic_fake_quant,
    default_embedding_fake_quant,
    default_embedding_fake_quant_4bit,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    fused_per_channel_wt_fake_quant_range_neg_127_to_127,
    fused_wt_fake_quant_range_neg_127_to_127,
)
from .observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    ReuseInputObserver,
    default_debug_observer,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_reuse_input_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)
from .partial import _PartialWrapper

__all__ = [
    "QConfig", "QConfigAny", "QConfigDynamic", "default_activation_only_qconfig", "default_debug_qconfig",
    "default_dynamic_qat_qconfig", "default_dynamic_qconfig", "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit", "default_per_channel_qconfig", "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig", "default_qat_qconfig", "default_qat_qconfig_v2", "default_qconfig",
    "default_quint8_weight_qconfig", "default_reuse_input_qconfig", "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig", "default_weight_only_qconfig", "float16_dynamic_qconfig", "float16_static_qconfig",
    "float_qparams_weight_only_qconfig", "float_qparams_weight_only_qconfig_4bit", "get_default_qat_qconfig",
    "get_default_qat_qconfig_dict", "get_default_qconfig", "get_default_qconfig_dict", "per_channel_dynamic_qconfig",
    "qconfig_equals",
]  # fmt: skip

_INSTANCE = (
    "{} received observer instance, please pass observer class instead. "
    "Use MyObserver.with_args(x=1) to override arguments to constructor if needed"
)


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """Two constructors: of the observer (or fake quantization) of a layer's output, and of that of its weight."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        if isinstance(activation, nn.Module) or isinstance(weight, nn.Module):
            raise ValueError(_INSTANCE.format("QConfig"))
        return super().__new__(cls, activation, weight)


class QConfigDynamic(namedtuple("QConfigDynamic", ["activation", "weight"])):
    """The former QConfig for dynamic quantization."""

    __slots__ = ()

    def __new__(cls, activation: Any = nn.Identity, weight: Any = nn.Identity) -> QConfigDynamic:
        message = "`QConfigDynamic` is going to be deprecated in PyTorch 1.12, please use `QConfig` instead"
        warnings.warn(message, FutureWarning, stacklevel=2)
        if isinstance(weight, nn.Module):
            raise ValueError(_INSTANCE.format("QConfigDynamic"))
        return super().__new__(cls, activation, weight)


QConfigAny = QConfig | None
_float16 = functools.partial(PlaceholderObserver.with_args, dtype=torch.float16)

default_qconfig = QConfig(activation=default_observer, weight=default_weight_observer)
default_debug_qconfig = QConfig(weight=default_weight_observer, activation=default_debug_observer)
default_per_channel_qconfig = QConfig(activation=default_observer, weight=default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(activation=default_dynamic_quant_observer, weight=default_weight_observer)
float16_dynamic_qconfig = QConfig(activation=_float16(is_dynamic=True), weight=_float16())
float16_static_qconfig = QConfig(activation=_float16(), weight=_float16())
per_channel_dynamic_qconfig = QConfig(
    activation=default_dynamic_quant_observer, weight=default_per_channel_weight_observer
)
float_qparams_weight_only_qconfig = QConfig(
    activation=default_placeholder_observer, weight=default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    activation=default_placeholder_observer, weight=default_float_qparams_observer_4bit
)
default_qat_qconfig = QConfig(activation=default_fake_quant, weight=default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(activation=default_dynamic_fake_quant, weight=default_weight_fake_quant)
default_weight_only_qconfig = QConfig(activation=nn.Identity, weight=default_weight_fake_quant)
default_activation_only_qconfig = QConfig(activation=default_fake_quant, weight=nn.Identity)
default_qat_qconfig_v2 = QConfig(activation=default_fused_act_fake_quant, weight=default_fused_wt_fake_quant)
default_reuse_input_qconfig = QConfig(activation=default_reuse_input_observer, weight=NoopObserver)
default_embedding_qat_qconfig = QConfig(
    activation=NoopObserver.with_args(dtype=torch.float32), weight=default_embedding_fake_quant
)
default_embedding_qat_qconfig_4bit = QConfig(
    activation=NoopObserver.with_args(dtype=torch.float32), weight=default_embedding_fake_quant_4bit
)
default_quint8_weight_qconfig = QConfig(activation=HistogramObserver, weight=MinMaxObserver)

_signed = HistogramObserver.with_args(dtype=torch.qint8, reduce_range=False, eps=2**-12)
default_symmetric_qnnpack_qconfig = QConfig(activation=_signed, weight=weight_observer_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    activation=_signed, weight=per_channel_weight_observer_range_neg_127_to_127
)
_signed_fake = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=torch.qint8,
    reduce_range=False,
    eps=2**-12,
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    activation=_signed_fake, weight=fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    activation=_signed_fake, weight=fused_per_channel_wt_fake_quant_range_neg_127_to_127
)
_default_fp32_placeholder_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=torch.float32),
    weight=PlaceholderObserver.with_args(dtype=torch.float32),
)
_default_quint8_placeholder_qconfig = QConfig(activation=PlaceholderObserver.with_args(dtype=torch.quint8), weight=None)

_BACKENDS = ["fbgemm", "x86", "qnnpack", "onednn"]
_REDUCED: dict[str, dict[str, bool]] = {  # engines that add products of bytes in 16 bits leave one bit unused
    "fbgemm": {"reduce_range": True},
    "x86": {"reduce_range": True},
    "qnnpack": {"reduce_range": False},
    "onednn": {},
}


def _check_backend(backend: str) -> None:
    if backend not in _BACKENDS:
        raise AssertionError(f"backend: {backend} not supported. backend must be one of {_BACKENDS}")


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """Return the default QConfig for post-training quantization, for an engine."""
    _check_backend(backend)
    if version != 0:
        raise AssertionError(
            f"Version number: {version} in get_default_qconfig is not supported. Version number must be 0"
        )
    reduced = {"reduce_range": False, **_REDUCED[backend]}
    weight = default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer
    return QConfig(activation=HistogramObserver.with_args(**reduced), weight=weight)


def get_default_qat_qconfig(backend: str = "x86", version: int | None = 1) -> QConfig:
    """Return the default QConfig for quantization-aware training, for an engine; version 0 uses the unfused modules."""
    _check_backend(backend)
    if version not in (0, 1):
        raise AssertionError(
            f"Version number: {version}in get_default_qat_qconfig is not supported. Version number must be 0 or 1"
        )
    kind: Any = FusedMovingAvgObsFakeQuantize if version else FakeQuantize
    if backend == "qnnpack":
        weight = default_fused_wt_fake_quant if version else default_weight_fake_quant
    else:
        weight = default_fused_per_channel_wt_fake_quant if version else default_per_channel_weight_fake_quant
    limits: dict[str, Any] = {"observer": MovingAverageMinMaxObserver, "quant_min": 0, "quant_max": 255}
    return QConfig(activation=kind.with_args(**limits, **_REDUCED[backend]), weight=weight)


def _former_dict(name: str, mapping: str) -> Callable:
    def get(backend: str, version: int) -> dict[str, Any]:
        qconfig_mapping = naming.above("ao.quantization.qconfig_mapping")  # which is made of qconfigs
        warnings.warn(
            f"`torch.ao.quantization.{name}` is deprecated and will be removed in a future version. "
            f"Please use `torch.ao.quantization.{mapping}` instead.",
            FutureWarning,
            stacklevel=3,
        )
        return getattr(qconfig_mapping, mapping)(backend, version).to_dict()

    return get


_qconfig_dict = _former_dict("get_default_qconfig_dict", "get_default_qconfig_mapping")
_qat_qconfig_dict = _former_dict("get_default_qat_qconfig_dict", "get_default_qat_qconfig_mapping")


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """Return `get_default_qconfig_mapping(...).to_dict()`: the former interface."""
    return _qconfig_dict(backend, version)


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """Return `get_default_qat_qconfig_mapping(...).to_dict()`: the former interface."""
    return _qat_qconfig_dict(backend, version)


def _assert_valid_qconfig(qconfig: QConfigAny, mod: nn.Module) -> None:
    """Raise if a transposed convolution has a per-channel weight observer, which is not supported."""
    if qconfig is None or qconfig.weight is None:
        return
    transposed = isinstance(mod, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d))
    by_channel = (PerChannelMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
    if transposed and isinstance(qconfig.weight(), by_channel):
        raise AssertionError("Per channel weight observer is not supported yet for ConvTranspose{n}d.")


def _add_module_to_qconfig_obs_ctr(qconfig: Any, module: nn.Module | None) -> Any:
    """Return the qconfig with observers that are made on the device of `module`."""
    if module is None or qconfig is None or qconfig._fields != ("activation", "weight"):
        return qconfig

    def on_device() -> dict | None:
        devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
        return {"device": next(iter(devices))} if devices else None

    def configured(constructor: Any) -> Any:
        try:
            constructor.with_args(factory_kwargs=None)()
            return constructor.with_callable_args(factory_kwargs=on_device)
        except (AttributeError, TypeError):  # not an observer, or one that takes no such argument
            return constructor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of observers that are made only to see whether they can be
        return QConfig(configured(qconfig.activation), configured(qconfig.weight))


def _obs_or_fq_ctr_equals(one: Any, other: Any) -> bool:
    if not (isinstance(one, _PartialWrapper) and isinstance(other, _PartialWrapper)):
        return one == other
    ours, theirs = dict(one.p.keywords), dict(other.p.keywords)
    both = "observer" in ours and "observer" in theirs
    if both and not _obs_or_fq_ctr_equals(ours.pop("observer"), theirs.pop("observer")):
        return False
    return one.p.func == other.p.func and one.p.args == other.p.args and ours == theirs


_partial_wrapper_equals = _obs_or_fq_ctr_equals


def qconfig_equals(q1: QConfigAny, q2: QConfigAny) -> bool:
    """Return whether two qconfigs make the same observers."""
    if q1 is None or q2 is None:
        return q1 == q2
    try:
        return _obs_or_fq_ctr_equals(q1.activation, q2.activation) and _obs_or_fq_ctr_equals(q1.weight, q2.weight)
    except AttributeError:
        return q1 == q2


def _activation_is_memoryless(qconfig: Any) -> bool:
    """Return whether an activation's scale depends on the newest values only."""
    watching = qconfig.activation()
    if isinstance(watching, FakeQuantizeBase) and hasattr(watching, "activation_post_process"):
        watching = watching.activation_post_process
    return getattr(watching, "averaging_constant", None) == 1


def _is_reuse_input_qconfig(qconfig: Any) -> bool:
    return (
        qconfig is not None
        and isinstance(qconfig.activation(), ReuseInputObserver)
        and isinstance(qconfig.weight(), NoopObserver)
    )
