"""Helpers of models that can be quantized: stubs at both ends, fusion, and their builders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import flambeau
from flambeau import Tensor, nn

from ....ao import quantization as flow
from .._api import expect_option, load_weights, model_builder, published_weights


class Quantizable(nn.Module):
    """Mixin before a model's class: its forward runs between a QuantStub and a DeQuantStub."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.quant, self.dequant = flow.QuantStub(), flow.DeQuantStub()

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(super().forward(self.quant(x)))


def fuse(model: nn.Module, names: list, is_qat: bool | None) -> None:
    """Fuse modules in place; for quantization-aware training if the model is in training mode, unless `is_qat` is given."""
    training = model.training if is_qat is None else is_qat
    (flow.fuse_modules_qat if training else flow.fuse_modules)(model, names, inplace=True)


def plain_relus(model: nn.Module) -> None:
    """Replace every ReLU and ReLU6 by a ReLU that is not in place, which can be fused."""
    for name, child in model.named_children():
        plain_relus(child)
        if type(child) in (nn.ReLU, nn.ReLU6):
            setattr(model, name, nn.ReLU(inplace=False))


def quantize_model(model: Any, backend: str) -> None:
    """Fuse, prepare and convert a model in place, calibrated with random data: weights are loaded afterwards."""
    if backend not in flambeau.backends.quantized.supported_engines:
        raise RuntimeError("Quantized backend not supported ")
    flambeau.backends.quantized.engine = backend
    model.eval()
    weight = flow.default_per_channel_weight_observer if backend == "fbgemm" else flow.default_weight_observer
    model.qconfig = flow.QConfig(activation=flow.default_observer, weight=weight)
    model.fuse_model()
    flow.prepare(model, inplace=True)
    model(flambeau.rand(1, 3, 299, 299))
    flow.convert(model, inplace=True)


def trained_in_8_bits(model: Any, backend: str) -> None:
    """Prepare a model for quantization-aware training, in place: its published weights come from such training."""
    model.fuse_model(is_qat=True)
    model.qconfig = flow.get_default_qat_qconfig(backend)
    flow.prepare_qat(model, inplace=True)


def quantized_weights(*models: str) -> list[Any]:
    """Return the enums `<model>_QuantizedWeights` of these models, as if defined in the caller's module."""
    module = sys._getframe(1).f_globals["__name__"]
    return [published_weights(f"{model}_QuantizedWeights", module) for model in models]


def builder(
    name: str,
    construct: Callable[..., nn.Module],
    plain: Any,
    quantized: Any,
    *fixed: Any,
    backend: str = "fbgemm",
    forced: Mapping[str, Any] | None = None,
    auxiliary: tuple[str, ...] = (),
    by_training: bool = False,
) -> Callable[..., nn.Module]:
    """Return the builder of a quantizable model, quantized with `quantize=True`. `plain` and `quantized` are the enums of weights for
    these. `auxiliary` names classifiers that published files have and results do not; `by_training`: see trained_in_8_bits."""

    def build(*, weights: Any = None, progress: bool = True, quantize: bool = False, **kwargs: Any) -> nn.Module:
        wanted = kwargs.get("aux_logits", False)
        for option, value in (forced or {}).items():
            expect_option(kwargs, option, value)
        if weights is not None:
            if auxiliary:
                kwargs.setdefault("transform_input", True)
                expect_option(kwargs, "aux_logits", True)
            expect_option(kwargs, "num_classes", len(weights.meta["categories"]))
            if "backend" in weights.meta:
                expect_option(kwargs, "backend", weights.meta["backend"])
        engine = kwargs.pop("backend", backend)
        model: Any = construct(*fixed, **kwargs)
        plain_relus(model)
        if quantize:
            (trained_in_8_bits if by_training else quantize_model)(model, engine)
        load_weights(model, weights, progress)
        if quantize and by_training:
            flow.convert(model, inplace=True)
            model.eval()
        if weights is not None and auxiliary and not wanted:
            for part in ("aux_logits", *auxiliary):
                setattr(model, part, False if part == "aux_logits" else None)
        return model

    build.__name__ = build.__qualname__ = name
    build.__module__ = sys._getframe(1).f_globals["__name__"]
    build.__doc__ = (
        f"{name}, made so that it can be quantized.\n\n`quantize=True` gives a model with weights of 8 bits. `weights` is None (random), a"
        f" member of `{plain.__name__}` (`{quantized.__name__}` with `quantize`) or its name; other arguments go to the model."
    )
    return model_builder(quantized, choose=lambda kwargs: quantized if kwargs.get("quantize") else plain)(build)
