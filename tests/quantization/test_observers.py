"""Observers find PyTorch's scales and zero points, number by number, and keep and print what PyTorch's do."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.ao import quantization


@pytest.fixture(scope="module")
def torch() -> Any:
    return judge("torch")


def _batches(kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    change = {
        "normal": lambda x: x,
        "positive": np.abs,
        "heavy": lambda x: x**3,
        "far": lambda x: np.maximum(x, 0) + 5,
    }[kind]
    return [change(rng.standard_normal((8, 6, 5)).astype(np.float32) * (i + 1)) for i in range(3)]


PER_TENSOR = [
    (name, dtype, scheme, reduced)
    for name, dtype, scheme, reduced in itertools.product(
        ("MinMaxObserver", "MovingAverageMinMaxObserver", "HistogramObserver"),
        ("quint8", "qint8"),
        ("per_tensor_affine", "per_tensor_symmetric"),
        (False, True),
    )
    if not (dtype == "quint8" and scheme == "per_tensor_symmetric" and reduced)
]
PER_CHANNEL = list(
    itertools.product(
        ("PerChannelMinMaxObserver", "MovingAveragePerChannelMinMaxObserver"),
        ("quint8", "qint8"),
        ("per_channel_affine", "per_channel_symmetric", "per_channel_affine_float_qparams"),
        (0, 1),
    )
)


def _compare(torch: Any, name: str, kind: str, **settings: Any) -> None:
    made = []
    for library in (torch, flambeau):
        given = {k: getattr(library, v) if isinstance(v, str) else v for k, v in settings.items()}
        observer = getattr(library.ao.quantization, name)(**given)
        for x in _batches(kind):
            observer(library.tensor(x))
        made.append(observer)
    for theirs, ours in zip(*(observer.calculate_qparams() for observer in made)):
        assert str(theirs.dtype) == str(ours.dtype)
        np.testing.assert_array_equal(theirs.numpy(), ours.numpy())
    states = [observer.state_dict() for observer in made]
    assert list(states[0]) == list(states[1])
    for key in states[0]:
        np.testing.assert_array_equal(states[0][key].numpy(), states[1][key].numpy())
    assert repr(made[0]) == repr(made[1])


@pytest.mark.filterwarnings("ignore:Please use quant_min")
@pytest.mark.parametrize("kind", ["normal", "heavy", "far"])
def test_one_scale(torch: Any, kind: str) -> None:
    for name, dtype, scheme, reduced in PER_TENSOR:
        if name != "HistogramObserver" or (dtype, reduced) == ("quint8", False) or kind == "normal":
            _compare(torch, name, kind, dtype=dtype, qscheme=scheme, reduce_range=reduced)


@pytest.mark.parametrize("kind", ["normal", "positive"])
def test_a_scale_for_each_channel(torch: Any, kind: str) -> None:
    for name, dtype, scheme, axis in PER_CHANNEL:
        _compare(torch, name, kind, dtype=dtype, qscheme=scheme, ch_axis=axis)


def test_names_and_configurations(torch: Any) -> None:
    """Every public name is there, and the usual configurations print as PyTorch's do."""
    theirs = judge("torch.ao.quantization")

    for part in ("observer", "fake_quantize", "qconfig", "qconfig_mapping", "stubs", "fuse_modules", "quant_type"):
        module = getattr(theirs, part, None) or __import__(f"torch.ao.quantization.{part}", fromlist=["x"])
        names = getattr(module, "__all__", [])
        assert [n for n in names if not hasattr(quantization, n) and n != "fuse_known_modules"] == []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for backend in ("x86", "fbgemm", "qnnpack", "onednn"):
            for name in ("get_default_qconfig", "get_default_qat_qconfig"):
                a, b = (repr(getattr(q, name)(backend)) for q in (theirs, quantization))
                assert a.replace("torch.", "") == b.replace("flambeau.", "").replace("torch.", "")


def test_state_of_observers_goes_from_model_to_model() -> None:
    def prepared() -> Any:
        model = flambeau.nn.Sequential(flambeau.nn.Linear(3, 2))
        model.qconfig = quantization.default_qconfig
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return quantization.prepare(model)

    first, second = prepared(), prepared()
    first(flambeau.randn(4, 3))
    state = quantization.get_observer_state_dict(first)
    assert sorted(state) == [f"0.activation_post_process.{n}" for n in ("eps", "max_val", "min_val")]
    quantization.load_observer_state_dict(second, state)
    assert second[0].activation_post_process.min_val == first[0].activation_post_process.min_val
