"""Lazy modules and uninitialized parameters.

Each scenario runs in both libraries; results, or type and text of the error, must be the same."""

import copy
import pickle
import warnings

import pytest

import flambeau

from .helpers import inputs, numbers, same_state
from .layer_table import LAZY, build
from .scenarios import Scenarios, torch

scenario = Scenarios()


@scenario
def lazy(T, nn):
    m = nn.LazyLinear(3)
    out = [repr(m), repr(m.weight), m.has_uninitialized_params(), repr(list(m.state_dict().values()))]
    m(T.ones(4, 5))
    return out + [
        repr(m),
        m._get_name(),
        tuple(m.weight.shape),
        m.in_features,
        len(m._forward_pre_hooks),
        len(m._load_state_dict_pre_hooks),
        m.bias.requires_grad,
    ]


@scenario
def lazy_load(T, nn):
    m = nn.LazyLinear(3)
    m.load_state_dict(nn.Linear(4, 3).state_dict())
    return [tuple(m.weight.shape), m._get_name(), repr(m), m(T.ones(1, 4)), m._get_name(), repr(m)]


@scenario
def lazy_into_eager(T, nn):
    try:
        nn.Linear(2, 3).load_state_dict(nn.LazyLinear(3).state_dict())
    except RuntimeError:
        return "RuntimeError"


@scenario
def lazy_lazy(T, nn):
    m = nn.LazyLinear(3)
    m.load_state_dict(nn.LazyLinear(3).state_dict())
    return repr(m.weight)


@scenario
def lazy_half(T, nn):
    m = nn.LazyLinear(3).half()
    return [str(m.weight.dtype), repr(m.weight), str(m.to(T.float64).weight.dtype)]


@scenario
def lazy_copy(T, nn):
    m = copy.deepcopy(nn.LazyLinear(3))
    n = pickle.loads(pickle.dumps(nn.LazyConv2d(3, 2)))
    return [
        repr(m.weight),
        tuple(m(T.ones(1, 7)).shape),
        m._get_name(),
        repr(n.weight),
        tuple(n(T.ones(1, 7, 4, 4)).shape),
    ]


@scenario
def lazy_op(T, nn):
    out = []
    for f in (
        lambda w: w + 1,
        lambda w: w.sum(),
        lambda w: w.numel(),
        lambda w: w.detach(),
        lambda w: w.requires_grad_(False),
        lambda w: w.shape,
    ):
        try:
            out.append(str(f(nn.LazyLinear(3).weight)))
        except Exception as e:
            out.append(type(e).__name__)
    return out


@scenario
def lazy_seq(T, nn):
    m = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    y = m(T.ones(2, 3, 5, 5))
    return [repr(m), y, list(m.state_dict())]


@scenario
def lazy_bad_dim(T, nn):
    nn.LazyConv2d(3, 2)(T.ones(3, 4))


@scenario
def lazy_bn_bad(T, nn):
    nn.LazyBatchNorm2d()(T.ones(3, 4))


@scenario
def lazy_share(T, nn):
    nn.LazyLinear(3).share_memory()


@scenario
def lazy_apply(T, nn):
    out = []
    nn.LazyLinear(3).apply(lambda m: out.append(repr(m)))
    return out


@scenario
def lazy_buffer_is_a_buffer(T, nn):
    class Own(nn.modules.lazy.LazyModuleMixin, nn.Module):
        pass

    m = Own()
    m.shape_comes_later = nn.parameter.UninitializedBuffer()
    before = m.has_uninitialized_params(), list(m.state_dict())
    m.shape_comes_later.materialize(3)
    return [before, m.has_uninitialized_params(), list(m.shape_comes_later.shape)]


test_same_in_both_libraries = scenario.as_test()


@pytest.mark.parametrize(("text", "shape"), [pytest.param(*row, id=row[0]) for row in LAZY])
def test_first_forward_makes_the_layer(text, shape):
    layers = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for library in (torch, flambeau):
            library.manual_seed(5)
            layers.append(build(library, text))
    theirs, ours = layers
    assert repr(ours) == repr(theirs)
    assert [str(v) for v in ours.state_dict().values()] == [str(v) for v in theirs.state_dict().values()]
    (x,), (y,) = inputs(torch, flambeau, [shape])
    expected, actual = theirs(x), ours(y)
    assert ours._get_name() == theirs._get_name() and repr(ours) == repr(theirs)
    assert abs(numbers(actual) - numbers(expected)).max() < 1e-5
    if not ours.state_dict().keys() & {"running_mean"}:
        same_state(theirs.state_dict(), ours.state_dict())
    assert torch.rand(1).item() == flambeau.rand(1).item()
