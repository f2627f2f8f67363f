"""Memory that nobody has written yet, while deterministic algorithms are demanded; storages on devices and as data."""

from __future__ import annotations

import pytest
from answers import judge

import flambeau

MAKERS = [
    "",
    "torch.empty(3, dtype={0})",
    "torch.empty_like(torch.zeros(2, 3, dtype={0}).t())",
    "torch.empty_strided((2, 2), (1, 2), dtype={0})",
    "torch.empty_permuted((2, 3), (1, 0), dtype={0})",
    "torch.zeros(2, dtype={0}).resize_(5)",
    "",
][1:-1]


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int16", "uint8", "bool", "bfloat16"])
@pytest.mark.parametrize("maker", MAKERS)
def test_empty_memory_is_filled(maker, dtype, agrees):
    setup = "torch.use_deterministic_algorithms(True)"
    torch = judge("torch")
    try:
        agrees(maker.format(f"torch.{dtype}"), setup)
    finally:
        for library in (torch, flambeau):
            library.use_deterministic_algorithms(False)


def test_the_switch():
    switches = flambeau.utils.deterministic
    assert switches.fill_uninitialized_memory is True
    switches.fill_uninitialized_memory = False
    flambeau.use_deterministic_algorithms(True)
    try:
        full = flambeau.full((64,), 7.0)
        del full
        assert not flambeau.empty(64).isnan().any()
    finally:
        switches.fill_uninitialized_memory = True
        flambeau.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "expression",
    [
        "torch.tensor(torch.arange(3.0).storage())",
        "torch.tensor(torch.arange(3.0).untyped_storage(), dtype=torch.int32)",
        "torch.tensor(torch.arange(3.0).storage(), dtype=torch.int32)",
        "torch.TypedStorage([1, 2], dtype=torch.int8, device='meta').size()",
        "torch.TypedStorage([1, 2], dtype=torch.int8, device='meta')[0]",
        "torch.TypedStorage([1, 2], dtype=torch.int8, device='meta').cpu()",
        "torch.zeros(2, device='meta').untyped_storage().share_memory_()",
        "torch.zeros(2).resize_(3)._version",
        "torch.cov(torch.tensor([[1.0, 2.0], [4.0, 3.0]]), correction=3, aweights=torch.tensor([1.0, 2.0]))",
        "torch.testing.make_tensor(5, dtype=torch.float8_e5m2, device='cpu').dtype",
    ],
)
def test_storages_and_their_kin(expression, agrees):
    agrees(expression, "")


def test_former_signatures_warn_each_time_if_asked():
    x = flambeau.ones(2)
    flambeau.set_warn_always(True)
    try:
        for _ in range(2):
            with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
                flambeau.addcmul(x, 2, x, x)
    finally:
        flambeau.set_warn_always(False)
