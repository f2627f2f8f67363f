"""Every layer against PyTorch's: printed form, initial weights, settings, forward and backward."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from answers import judge
from answers.programs import check

import flambeau
import flambeau.nn

from .helpers import inputs, leaves, numbers, same_state
from .layer_table import EAGER, build

torch = judge("torch")

pytestmark = pytest.mark.filterwarnings("ignore")
ALL = [pytest.param(text, id=text) for text, _ in EAGER]
CALLED = [pytest.param(text, shapes, id=text) for text, shapes in EAGER if shapes is not None]

# PyTorch's gradient of CrossMapLRN2d is not the derivative of its forward; test_cross_map_lrn_gradient checks ours.
WRONG_GRADIENT_IN_TORCH = [text for text, _ in EAGER if "CrossMapLRN2d" in text]


def both(text, seed=7):
    torch.manual_seed(seed)
    theirs = build(torch, text)
    flambeau.manual_seed(seed)
    return theirs, build(flambeau, text)


@pytest.mark.parametrize("text", ALL)
def test_printed_form(text):
    theirs, ours = both(text)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("text", ALL)
def test_initial_state_has_the_same_bits_and_draws_as_many_numbers(text):
    theirs, ours = both(text)
    same_state(theirs.state_dict(), ours.state_dict())
    assert torch.rand(1).item() == flambeau.rand(1).item()


SETTINGS = """
names = {
    n: v for n, v in sorted(vars(layer).items()) if not n.startswith("_") and isinstance(v, (int, float, str, tuple, list, type(None)))
}
(
    [(n, p.requires_grad) for n, p in layer.named_parameters()], [n for n, _ in layer.named_buffers()], layer.state_dict()._metadata,
    "BCEWithLogits" not in str(layer) and list(getattr(layer, "__constants__", ())), names,
)
"""


@pytest.mark.parametrize("text", [row for row in ALL if "DataParallel" not in row.id])
def test_parameters_versions_and_settings(text):
    check(f"layer = {text}{SETTINGS}")


@pytest.mark.parametrize("text", ALL)
def test_all_of_a_layer_is_made_on_the_default_device(text):
    places = []
    for library in (torch, flambeau):
        with library.device("meta"):
            layer = build(library, text)
        places.append({name: str(tensor.device) for name, tensor in layer.state_dict().items()})
    assert places[0] == places[1]


@pytest.mark.parametrize("text", [row for row in ALL if "LinearCrossEntropyLoss" not in row.id])
def test_reset_parameters_repeats_the_initial_numbers(text):
    check(
        f"layer = {text}\nhasattr(layer, 'reset_parameters') and (layer.reset_parameters(), digest(layer.state_dict()))[1]"
    )


@pytest.mark.parametrize("text", ALL)
def test_copies_are_equal_and_independent(text):
    _, ours = both(text)
    for twin in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert type(twin) is type(ours) and repr(twin) == repr(ours)
        same_state(ours.state_dict(), twin.state_dict())
        own = {t.data_ptr() for t in ours.state_dict().values() if t.numel()}
        assert not own & {t.data_ptr() for t in twin.state_dict().values() if t.numel()}


@pytest.mark.parametrize("text", ALL)
def test_conversion_changes_floating_point_tensors_only(text):
    theirs, ours = both(text)
    kept = dict(ours.named_parameters())
    for convert in ("half", "double", "bfloat16", "float"):
        assert getattr(ours, convert)() is ours
        getattr(theirs, convert)()
        same_state(theirs.state_dict(), ours.state_dict())
    assert all(p is kept[n] for n, p in ours.named_parameters())


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(("text", "shapes"), CALLED)
def test_forward_and_backward(text, shapes, training):
    theirs, ours = both(text)
    theirs.train(training)
    ours.train(training)
    their_inputs, our_inputs = inputs(torch, flambeau, shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, actual = leaves(theirs(*their_inputs)), leaves(ours(*our_inputs))
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected):
        assert tuple(a.shape) == tuple(e.shape) and str(a.dtype) == str(e.dtype)
        np.testing.assert_allclose(numbers(a), numbers(e), rtol=2e-5, atol=1e-5)
    for name, value in theirs.state_dict().items():  # running statistics
        np.testing.assert_allclose(numbers(ours.state_dict()[name]), numbers(value), rtol=1e-5, atol=1e-6)
    if text in WRONG_GRADIENT_IN_TORCH:
        return
    weights = np.random.default_rng(1).standard_normal(tuple(expected[0].shape)).astype(np.float32)
    expected[0].backward(torch.from_numpy(weights))
    actual[0].backward(flambeau.from_numpy(weights))
    pairs = list(zip(our_inputs, their_inputs)) + list(zip(ours.parameters(), theirs.parameters()))
    for a, e in pairs:
        assert (a.grad is None) == (e.grad is None)
        if e.grad is not None:
            np.testing.assert_allclose(numbers(a.grad), numbers(e.grad), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize(("text", "shapes"), [c for c in CALLED if "Sequential" not in c.values[0]][::5])
def test_hooks_see_every_layer(text, shapes):
    _, ours = both(text)
    seen = []
    ours.register_forward_hook(lambda module, args, output: seen.append((module, len(args))))
    ours(*inputs(torch, flambeau, shapes)[1])
    assert seen == [(ours, len(shapes))]


def test_cross_map_lrn_gradient():
    layer = flambeau.nn.CrossMapLRN2d(3, alpha=0.5)
    x = flambeau.randn(1, 5, 2, 2, dtype=flambeau.float64, requires_grad=True)
    assert flambeau.autograd.gradcheck(layer, (x,))
