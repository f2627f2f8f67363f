"""The attention layer that can be quantized computes what the float layer does."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.ao.nn import quantizable

pytestmark = pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")


@pytest.mark.parametrize("masked", [False, True])
def test_attention_from_a_float_layer(masked: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2).eval()
    layer.qconfig = None
    made = quantizable.MultiheadAttention.from_float(layer)
    x = torch.randn(5, 3, 8)
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1) if masked else None
    for ours, theirs in zip(made(x, x, x, attn_mask=mask), layer(x, x, x, attn_mask=mask)):
        torch.testing.assert_close(ours, theirs)
