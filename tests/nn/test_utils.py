"""nn.utils beside PyTorch: the same numbers, names, warnings and errors."""

import copy

import numpy as np
import pytest
from answers import judge

import flambeau
import flambeau.func

from .helpers import numbers, same_state

torch = judge("torch")
judge("torch.nn.utils.prune")

BOTH = (torch, flambeau)


def same(theirs, ours, tolerance=1e-5):
    assert tuple(ours.shape) == tuple(theirs.shape)
    assert str(ours.dtype) == str(theirs.dtype)
    np.testing.assert_allclose(numbers(ours), numbers(theirs), rtol=tolerance, atol=tolerance)


def both(build):
    """The result of one program under each library, from the same seed."""
    results = []
    for library in BOTH:
        library.manual_seed(3)
        results.append(build(library))
    return results


def ramp(library, *shape):
    return library.from_numpy(np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def trained(library, layer, *shape):
    """Output and parameter gradients after one forward and backward."""
    out = layer(ramp(library, *shape))
    out.square().sum().backward()
    return [out, *[p.grad for p in layer.parameters()]]


def all_same(pairs):
    theirs, ours = pairs
    assert len(theirs) == len(ours)
    for a, b in zip(theirs, ours):
        same(a, b, 2e-4)


# -- clipping ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", [2.0, 1.0, 0.5, float("inf")])
@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_clip_grad_norm(order, limit):
    def build(library):
        layer = library.nn.Linear(3, 2)
        layer(ramp(library, 4, 3)).square().sum().backward()
        total = library.nn.utils.clip_grad_norm_(layer.parameters(), limit, norm_type=order)
        return [total, *[p.grad for p in layer.parameters()]]

    all_same(both(build))


def test_clipping_by_value_and_by_a_known_norm():
    def build(library):
        layer = library.nn.Linear(3, 2)
        layer(ramp(library, 4, 3)).square().sum().backward()
        library.nn.utils.clip_grad_value_(layer.parameters(), 0.3)
        total = library.nn.utils.get_total_norm([p.grad for p in layer.parameters()])
        library.nn.utils.clip_grads_with_norm_(layer.parameters(), 0.1, total)
        return [total, *[p.grad for p in layer.parameters()]]

    all_same(both(build))


@pytest.mark.parametrize("library", BOTH)
def test_clipping_corner_cases(library):
    utils = library.nn.utils
    assert utils.clip_grad_norm_([library.ones(2, requires_grad=True)], 1.0).item() == 0
    with pytest.warns(UserWarning, match="empty generator"):
        utils.clip_grad_norm_((p for p in []), 1.0)
    p = library.ones(2, requires_grad=True)
    p.grad = library.tensor([1.0, float("nan")])
    with pytest.raises(RuntimeError, match="non-finite"):
        utils.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)
    with pytest.warns(FutureWarning, match="deprecated"):
        utils.clip_grad_norm(p, 1.0)


def test_parameters_as_a_vector():
    def build(library):
        layer = library.nn.Linear(3, 2)
        vector = library.nn.utils.parameters_to_vector(layer.parameters())
        library.nn.utils.vector_to_parameters(vector * 2, layer.parameters())
        with pytest.raises(TypeError):
            library.nn.utils.vector_to_parameters([1.0], layer.parameters())
        return [vector, layer.weight, layer.bias]

    all_same(both(build))


# -- parametrizations -------------------------------------------------------------------------------------------------
def symmetric(library):
    class Symmetric(library.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()

    return Symmetric()


def test_own_parametrization():
    def build(library):
        parametrize = library.nn.utils.parametrize
        layer = library.nn.Linear(3, 3)
        parametrize.register_parametrization(layer, "weight", symmetric(library))
        assert layer.__class__.__name__ == "ParametrizedLinear"
        assert parametrize.is_parametrized(layer, "weight") and not parametrize.is_parametrized(layer, "bias")
        assert parametrize.type_before_parametrizations(layer) is library.nn.Linear
        copied = copy.deepcopy(layer)
        copied.weight = library.eye(3)
        copied_weight = copied.weight
        with parametrize.cached():
            assert layer.weight is layer.weight
        assert layer.weight is not layer.weight
        results = trained(library, layer, 4, 3)
        state = layer.state_dict()
        assert list(state) == ["bias", "parametrizations.weight.original"]
        parametrize.remove_parametrizations(layer, "weight")
        assert layer.__class__ is library.nn.Linear and isinstance(layer.weight, library.nn.Parameter)
        return [*results, *state.values(), layer.weight, copied_weight]

    all_same(both(build))


@pytest.mark.parametrize("library", BOTH)
def test_refused_parametrizations(library):
    parametrize = library.nn.utils.parametrize

    class Shorter(library.nn.Module):
        def forward(self, x):
            return x[1:]

    layer = library.nn.Linear(3, 3)
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", Shorter())
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "nothing", Shorter())
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(layer, "weight")
    parametrize.register_parametrization(layer, "weight", Shorter(), unsafe=True)
    assert tuple(layer.weight.shape) == (2, 3)
    with pytest.raises(RuntimeError, match="right_inverse"):
        layer.weight = library.zeros(3, 3)


@pytest.mark.parametrize("further", [False, True], ids=["first", "further"])
@pytest.mark.parametrize("change", ["bool", "t", "meta"])
def test_inverses_that_change_the_tensor_are_refused(change, further):
    """With PyTorch's words: dtype, shape, device."""

    def message(library):
        class Inverse(library.nn.Module):
            def forward(self, x):
                return x

            def right_inverse(self, x):
                return x.to("meta") if change == "meta" else getattr(x, change)()

        parametrize = library.nn.utils.parametrize
        layer = library.nn.Linear(3, 2)
        if further:
            parametrize.register_parametrization(layer, "weight", library.nn.Identity())
        try:
            parametrize.register_parametrization(layer, "weight", Inverse())
        except ValueError as error:
            return str(error)
        return "accepted"

    theirs, ours = message(torch), message(flambeau)
    assert ours.split() == theirs.split()


def test_a_mask_has_the_dtype_of_what_it_masks():
    def mask(library):
        container = library.nn.utils.prune.PruningContainer()
        method = library.nn.utils.prune.L1Unstructured(amount=1)
        container._tensor_name = method._tensor_name = "weight"
        container.add_pruning_method(method)
        return [container.compute_mask(library.tensor([1.0, 2.0, 3.0]), library.tensor([1, 0, 1]))]

    all_same((mask(torch), mask(flambeau)))


LAYERS = {
    "linear": (lambda library: library.nn.Linear(3, 2), (4, 3)),
    "conv": (lambda library: library.nn.Conv2d(2, 3, 2), (1, 2, 4, 4)),
    "transposed": (lambda library: library.nn.ConvTranspose2d(2, 3, 2), (1, 2, 3, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize("style", ["new", "old"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_normed_weights(name, kind, style):
    make, shape = LAYERS[name]

    def build(library):
        utils = library.nn.utils
        layer = getattr(utils.parametrizations if style == "new" else utils, kind)(make(library))
        first = trained(library, layer, *shape)
        state = layer.state_dict()
        layer.eval()
        results = [*first, layer(ramp(library, *shape)), *state.values()]
        if style == "new":
            utils.parametrize.remove_parametrizations(layer, "weight")
        else:
            getattr(utils, "remove_" + kind)(layer)
        return state, [*results, *layer.state_dict().values(), layer(ramp(library, *shape))]

    (their_state, theirs), (our_state, ours) = both(build)
    assert list(our_state) == list(their_state)
    all_same((theirs, ours))


def test_weight_norm_over_everything_and_old_files():
    def build(library):
        utils = library.nn.utils
        with pytest.warns(FutureWarning):
            old = utils.weight_norm(library.nn.Linear(3, 2), dim=None)
        new = utils.parametrizations.weight_norm(library.nn.Linear(3, 2), dim=None)
        new.load_state_dict(old.state_dict())
        return [new.weight, *new.state_dict().values()]

    all_same(both(build))


# -- pruning ----------------------------------------------------------------------------------------------------------
PRUNINGS = {
    "identity": lambda prune, layer, library: prune.identity(layer, "weight"),
    "l1": lambda prune, layer, library: prune.l1_unstructured(layer, "weight", 0.4),
    "l1 count": lambda prune, layer, library: prune.l1_unstructured(layer, "weight", 5),
    "random": lambda prune, layer, library: prune.random_unstructured(layer, "weight", 0.3),
    "ln": lambda prune, layer, library: prune.ln_structured(layer, "weight", 0.5, n=2, dim=0),
    "ln inf": lambda prune, layer, library: prune.ln_structured(layer, "weight", 2, n=float("inf"), dim=1),
    "random channels": lambda prune, layer, library: prune.random_structured(layer, "weight", 2, dim=1),
    "mask": lambda prune, layer, library: prune.custom_from_mask(layer, "weight", ramp(library, 4, 6) > 0.2),
    "scores": lambda prune, layer, library: prune.l1_unstructured(layer, "weight", 3, ramp(library, 4, 6)),
}


@pytest.mark.parametrize("second", [None, "l1", "ln", "random channels"])
@pytest.mark.parametrize("first", PRUNINGS)
def test_pruning(first, second):
    def build(library):
        prune = library.nn.utils.prune
        layer = library.nn.Linear(6, 4)
        PRUNINGS[first](prune, layer, library)
        if second:
            PRUNINGS[second](prune, layer, library)
        assert prune.is_pruned(layer)
        results = trained(library, layer, 2, 6)
        state = layer.state_dict()
        prune.remove(layer, "weight")
        assert not prune.is_pruned(layer)
        return state, [*results, *layer.state_dict().values()]

    (their_state, theirs), (our_state, ours) = both(build)
    same_state(their_state, our_state)
    all_same((theirs, ours))


def test_global_pruning():
    def build(library):
        prune = library.nn.utils.prune
        model = library.nn.Sequential(library.nn.Linear(3, 4), library.nn.Linear(4, 2))
        pairs = [(model[0], "weight"), (model[1], "weight")]
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=0.5)
        prune.global_unstructured(pairs, prune.RandomUnstructured, amount=2)
        return model.state_dict()

    same_state(*both(build))


@pytest.mark.parametrize("library", BOTH)
def test_refused_prunings(library):
    prune = library.nn.utils.prune
    layer = library.nn.Linear(3, 2)
    for amount, error in ((1.5, ValueError), (-1, ValueError), ("x", TypeError), (7, ValueError)):
        with pytest.raises(error):
            prune.l1_unstructured(layer, "weight", amount)
    with pytest.raises(ValueError):
        prune.ln_structured(layer, "bias", 1, n=2, dim=0)
    with pytest.raises(ValueError, match="has to be pruned"):
        prune.remove(layer, "weight")
    assert sorted(layer.state_dict()) == ["bias", "weight"]


# -- fusion, calls without state, and the rest ------------------------------------------------------------------------
@pytest.mark.parametrize("name", LAYERS)
def test_fusion_with_batch_norm(name):
    make, shape = LAYERS[name]

    def build(library):
        layer = make(library)
        norm = library.nn.BatchNorm1d(2) if name == "linear" else library.nn.BatchNorm2d(3)
        norm(layer(ramp(library, *shape)))  # statistics
        utils = library.nn.utils
        fuse = utils.fuse_linear_bn_eval if name == "linear" else utils.fuse_conv_bn_eval
        with pytest.raises(AssertionError):
            fuse(layer, norm)
        layer.eval(), norm.eval()
        fused = fuse(layer, norm, transpose=True) if name == "transposed" else fuse(layer, norm)
        x = ramp(library, *shape)
        same(norm(layer(x)), fused(x), 1e-4)
        return [fused.weight, fused.bias]

    all_same(both(build))


def test_functional_call():
    def build(library):
        model = library.nn.Sequential(library.nn.Linear(3, 3), library.nn.BatchNorm1d(3))
        before = copy.deepcopy(model.state_dict())
        given = {"0.weight": library.eye(3, requires_grad=True), "1.running_mean": library.zeros(3)}
        out = library.func.functional_call(model, given, (ramp(library, 4, 3),))
        out.pow(3).sum().backward()
        assert model[0].weight.grad is None
        after = model.state_dict()
        with pytest.warns(FutureWarning):
            again = library.nn.utils.stateless.functional_call(model, dict(given), ramp(library, 4, 3))
        same(before["0.weight"], after["0.weight"])
        return [out, again, given["0.weight"].grad, given["1.running_mean"], *after.values()]

    all_same(both(build))


@pytest.mark.parametrize("library", BOTH)
def test_functional_call_names_and_ties(library):
    call = library.func.functional_call
    layer = library.nn.Linear(2, 2)
    tied = library.nn.Sequential(layer, layer)
    x, eye, zeros = ramp(library, 3, 2), library.eye(2), library.zeros(2)
    np.testing.assert_allclose(call(tied, ({"0.weight": eye}, {"0.bias": zeros}), x).detach().numpy(), x.numpy())
    with pytest.raises(ValueError, match="tied"):
        call(tied, {"0.weight": eye, "1.weight": eye.clone()}, x)
    with pytest.raises(ValueError, match="multiple dictionaries"):
        call(layer, ({"weight": eye}, {"weight": eye}), x)
    with pytest.raises(RuntimeError, match="Missing"):
        call(layer, {"weight": eye}, x, strict=True)
    with pytest.raises(AttributeError):
        call(layer, {"nothing.weight": eye}, x)
    call(layer, {"nothing": eye}, x)  # names that a forward may look for
    assert not hasattr(layer, "nothing")


@pytest.mark.parametrize("library", BOTH)
def test_functional_call_with_what_is_no_parameter_of_the_module(library):
    class Counting(library.nn.Linear):
        scale = 2.0

        def forward(self, x):
            return len(list(self.parameters()))

    layer, x, extra = Counting(2, 2), library.ones(2), library.nn.Parameter(library.ones(1))
    call = library.nn.utils.stateless._functional_call
    assert call(layer, {"extra": extra}, x) == 3
    assert call(layer, {"extra": library.ones(1)}, x) == 2  # the Parameter of the call before is gone
    with pytest.raises(TypeError, match="^4 is not an instance of torch.Tensor"):
        call(layer, {"weight": 4}, x)
    with pytest.raises(TypeError, match="attribute `scale`: 2.0 is not an instance of torch.Tensor"):
        call(layer, {"scale": extra}, x)
    with pytest.raises(KeyError, match="be empty string"):
        call(layer, {"": extra}, x)


@pytest.mark.parametrize("library", BOTH)
def test_layouts_and_skipped_initialization(library):
    utils = library.nn.utils
    conv = utils.convert_conv2d_weight_memory_format(library.nn.Conv2d(3, 2, 2), library.channels_last)
    assert conv.weight.is_contiguous(memory_format=library.channels_last) and conv.weight.requires_grad
    layer = utils.skip_init(library.nn.Linear, 3, 2)
    assert tuple(layer.weight.shape) == (2, 3) and layer.weight.device.type == "cpu"
    with pytest.raises(RuntimeError):
        utils.skip_init(dict)
