"""Constructors that take the parameters of another layer's."""

import inspect

import pytest

from flambeau import nn
from flambeau.nn.modules.settings import extending


class Rotated(nn.Linear):
    @extending(nn.Linear, before="device", without=("dtype",), bias=False)
    def __init__(self, angle: float = 0.5, **rest):
        super().__init__(**rest)
        self.angle = angle


class Narrow(nn.Linear):
    @extending(nn.Linear)
    def __init__(self, out_features: int = 1, scale: float = 2.0, **rest):
        super().__init__(out_features=out_features, **rest)
        self.scale = scale


def _shown(layer: type) -> str:
    return ", ".join(str(p.replace(annotation=p.empty)) for p in inspect.signature(layer).parameters.values())


def test_own_parameters_stand_before_the_named_one_or_replace_those_of_the_same_name():
    assert _shown(Rotated) == "in_features, out_features, bias=False, angle=0.5, device=None"
    assert _shown(Narrow) == "in_features, out_features=1, bias=True, device=None, dtype=None, scale=2.0"


def test_arguments_arrive_by_position_and_by_name():
    made = Rotated(3, 4, True, 0.25)
    assert (made.in_features, made.out_features, made.bias is not None, made.angle) == (3, 4, True, 0.25)
    assert Narrow(3, scale=1.5).scale == 1.5 and Narrow(3, 7).out_features == 7


@pytest.mark.parametrize("arguments, message", [
    ({}, r"__init__\(\) missing 2 required positional arguments: 'in_features' and 'out_features'"),
    ({"in_features": 1, "out_features": 2, "dtype": None}, "unexpected keyword argument 'dtype'"),
])  # fmt: skip
def test_wrong_arguments_are_python_errors(arguments, message):
    with pytest.raises(TypeError, match=message):
        Rotated(**arguments)
