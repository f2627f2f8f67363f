"""Names that libraries import from PyTorch's modules, beside the public ones, and what they do."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import flambeau

NAMES = """
_subclasses.fake_tensor: FakeTensor FakeTensorMode is_fake
_subclasses.functional_tensor: FunctionalTensor
distributions.transforms: _clipped_sigmoid
fx.experimental.proxy_tensor: get_proxy_mode
nn.init: _no_grad_fill_ _no_grad_normal_ _no_grad_trunc_normal_ _no_grad_uniform_
serialization: normalize_storage_type
utils._contextlib: _DecoratorContextManager _NoParamDecoratorContextManager
utils._device: CURRENT_DEVICE DeviceContext set_device
utils._pytree: _list_flatten _list_flatten_with_keys _list_unflatten
utils.data._utils.worker: _generate_state
utils.data.dataloader: _collate_fn_t
"""


@pytest.mark.parametrize("line", NAMES.strip().split("\n"))
def test_names_are_there(line):
    home, _, names = line.partition(":")
    module = importlib.import_module(f"flambeau.{home}")
    for name in names.split():
        assert hasattr(module, name), name


def test_types_of_torchscript_are_names_of_the_package():
    for name in ("TensorType", "FloatType", "IntType", "DeviceObjType", "ListType", "Graph"):
        assert getattr(flambeau, name) is not None
    assert str(flambeau.TensorType.get()) == "Tensor"
    assert flambeau.FloatType | int is not None and int | flambeau.FloatType is not None


def test_seeds_of_workers():
    """PyTorch's algorithm is NumPy's own; tests/utils compare what workers draw."""
    ours = importlib.import_module("flambeau.utils.data._utils.worker")._generate_state(12345678901, 3)
    assert (
        ours == np.random.SeedSequence([3, 12345678901 & 0xFFFFFFFF, 12345678901 >> 32, 0]).generate_state(4).tolist()
    )
    assert all(isinstance(word, int) for word in ours)


def test_the_default_device_as_a_context_manager():
    module = importlib.import_module("flambeau.utils._device")
    assert module.CURRENT_DEVICE is None
    with module.DeviceContext("meta"):
        assert flambeau.ones(1).device.type == "meta" and flambeau.device("meta") == module.CURRENT_DEVICE
    assert module.set_device("meta")(lambda: flambeau.ones(1).device.type)() == "meta"
    assert flambeau.ones(1).device.type == "cpu"


def test_decorators_of_ones_own():
    base = importlib.import_module("flambeau.utils._contextlib")._DecoratorContextManager
    seen = []

    class Noted(base):
        def __enter__(self):
            seen.append("in")

        def __exit__(self, *exc):
            seen.append("out")

    @Noted()
    def run():
        seen.append("run")

    @Noted()
    def count():
        yield 1

    run()
    assert list(count()) == [1] and seen == ["in", "run", "out", "in", "out", "in", "out"]


def test_the_recorder_of_graphs_is_known_while_it_works():
    module = importlib.import_module("flambeau.fx.experimental.proxy_tensor")
    seen = []
    module.make_fx(lambda x: (seen.append(module.get_proxy_mode()), x + 1)[1])(flambeau.ones(1))
    assert isinstance(seen[-1], module.GraphRecorder) and module.get_proxy_mode() is None


def test_pytorchs_own_kinds_of_tensors_say_what_to_use_instead():
    fake = importlib.import_module("flambeau._subclasses.fake_tensor")
    assert not fake.is_fake(flambeau.ones(1)) and not isinstance(flambeau.ones(1), fake.FakeTensor)
    with pytest.raises(NotImplementedError, match="meta"):
        fake.FakeTensorMode()


def test_schemas_name_dtypes():
    with flambeau.library._scoped_library("names_of_libraries", "DEF") as made:
        made.define("cast(Tensor x, ScalarType to=float8_e4m3fn, ScalarType other=long) -> Tensor")
        first, second = flambeau.ops.names_of_libraries.cast.default._schema.arguments[1:]
        assert first.default_value is flambeau.float8_e4m3fn and second.default_value is flambeau.int64


def test_memory_of_four_bit_numbers():
    x = flambeau.zeros(2, dtype=flambeau.uint8).view(flambeau.float4_e2m1fn_x2)
    assert x.dtype.is_floating_point and x.element_size() == 1 and x.clone().view(flambeau.uint8).tolist() == [0, 0]
    with pytest.raises(NotImplementedError, match="Float4_e2m1fn_x2"):
        x.to(flambeau.float32)
