"""What notebooks show of tensors and modules."""

from __future__ import annotations

import re

import numpy as np
import pytest

import flambeau
from flambeau import nn


def shown(value):
    return re.sub(r"<[^>]*>", " ", value._repr_html_())


def test_a_table_statistics_and_a_histogram():
    html = flambeau.arange(6.0).reshape(2, 3)._repr_html_()
    assert html.count("<td") == 6 and "2 &times; 3" in html and "torch.float32" in html
    assert "min 0, max 5, mean 2.5, std 1.871" in html
    heights = [float(h) for h in re.findall(r'<rect [^>]*height="([\d.]+)"', html)]
    assert len(heights) == 24 and sum(h > 0 for h in heights) == 6


def test_large_tensors_are_cut():
    text = flambeau.zeros(3, 100, 200)._repr_html_()
    assert text.count("<td") == 81 and "[0, :, :]" in text


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int64", "uint8", "complex64", "bool", "float8_e4m3fn"])
def test_every_kind_of_number(kind):
    assert "1" in shown(flambeau.ones(3).to(getattr(flambeau, kind))) or kind == "bool"


def test_numbers_that_are_not_finite_are_counted():
    text = shown(flambeau.tensor([1.0, float("nan"), float("inf"), 3.0]))
    assert "mean 2" in text and "1 nan, 1 inf" in text
    assert "2 nan, 0 inf" in shown(flambeau.tensor([float("nan")] * 2))
    assert "2 of 3 true" in shown(flambeau.tensor([True, False, True]))


def test_no_values_no_table():
    assert "<td" not in flambeau.empty(3, device="meta")._repr_html_()
    assert "<td" not in flambeau.empty(0, 3)._repr_html_()
    assert "one number" in flambeau.tensor(2.0)._repr_html_()


def test_gradients_and_text_only_kinds():
    x = flambeau.ones(2, requires_grad=True)
    assert "requires_grad" in shown(x) and "grad_fn MulBackward0" in shown(x * 2)
    assert flambeau.eye(2).to_sparse()._repr_html_() is None
    assert flambeau.quantize_per_tensor(flambeau.ones(2), 0.1, 0, flambeau.quint8)._repr_html_() is None


def test_modules_fold_and_count():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.ReLU()))
    model[0].weight.requires_grad_(False)
    html = model._repr_html_()
    assert html.count("<details") == 4 and "34 parameters" in html
    assert "4 &times; 3, frozen" in html and "in_features=3" in html
    assert "not yet known" in nn.LazyLinear(2)._repr_html_()


def test_names_are_escaped():
    class Odd(nn.Module):
        def extra_repr(self):
            return "<script>"

    assert "<script>" not in Odd()._repr_html_()
    assert np.isfinite(len(Odd()._repr_html_()))
