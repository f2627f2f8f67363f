"""What `help()` shows: signatures as PyTorch documents them, and clear words about what is not there yet."""

from __future__ import annotations

import inspect
import pydoc

import pytest
from answers import judge

import flambeau
from flambeau import ops

SHOWN = {
    "add": "(input, other, *, alpha=1, out=None)",
    "sub": "(input, other, *, alpha=1, out=None)",
    "addcmul": "(input, tensor1, tensor2, *, value=1, out=None)",
    "Tensor.add": "(input, other, *, alpha=1, out=None)",
    "Tensor.add_": "(self, other, *, alpha=1)",
    "Tensor.__add__": "(input, other, *, alpha=1)",
    "sort": "(input, dim=-1, descending=False, *, stable=None, out=None)",
    "max": "(input, dim=None, keepdim=False, *, out=None)",
    "std_mean": "(input, dim=None, *, correction=1, keepdim=False, out=None)",
    "reshape": "(input, shape)",
    "permute": "(input, dims)",
    "Tensor.expand": "(self, *size, implicit=False)",
    "sum": "(input, dim=None, keepdim=False, *, dtype=None, out=None)",
    "zeros": "(*size, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False)",
    "zeros_like": "(input, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None)",
    "eye": "(n, m=None, *, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False)",
    "einsum": "(equation, *operands)",
    "select_copy": "(input, dim, index)",
    "Tensor.index_put_": "(input, indices, values, accumulate=False)",
    "Tensor.addmv_": "(input, mat, vec, *, beta=1, alpha=1)",
}


def plain(signature: inspect.Signature) -> str:
    """A signature without annotations."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


@pytest.mark.parametrize("path", SHOWN)
def test_signatures_read_as_pytorchs(path: str) -> None:
    value = flambeau
    for part in path.split("."):
        value = getattr(value, part)
    assert plain(inspect.signature(value)) == SHOWN[path]
    assert "_more" not in pydoc.render_doc(value) and "**named" not in pydoc.render_doc(value)


def test_no_public_operator_shows_how_it_is_made() -> None:
    public = {**ops.namespace("torch"), **ops.namespace("nn.functional"), **ops.namespace("linalg")}
    public.update({f"Tensor.{name}": value for name, value in vars(flambeau.Tensor).items() if callable(value)})
    inner = ("_more", "named", "others", "options")
    wrong = []
    for name, value in public.items():
        try:
            parameters = inspect.signature(value).parameters
        except ValueError:  # Python's own
            continue
        variadic = [p.name for p in parameters.values() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        wrong += [f"{name}: {p}" for p in variadic if p in inner]
    absent_devices = {"Tensor.ipu: options", "Tensor.mtia: options", "Tensor.xpu: options"}  # these only raise
    assert sorted(set(wrong) - absent_devices) == []


def test_calls_take_more_than_is_shown() -> None:
    x = flambeau.arange(6.0)
    assert flambeau.add(x, 2, x).tolist() == (3 * x).tolist()  # the order of arguments before PyTorch 1.5
    assert flambeau.reshape(x, 2, 3).shape == flambeau.reshape(x, shape=(2, 3)).shape == (2, 3)
    assert flambeau.sum(x, axis=0) == 15
    assert flambeau.vmap(flambeau.add)(x, x).tolist() == (2 * x).tolist()


TYPES = [
    "torch.cuda.FloatTensor",
    "torch.cuda.HalfTensor",
    "torch.FooTensor",
    "float",
    3,
    [1],
    int,
    list,
    "torch.IntTensor",
]


@pytest.mark.parametrize("kind", [*TYPES, "cuda class"], ids=str)
def test_errors_of_type_are_pytorchs(kind: object) -> None:
    torch = judge("torch")
    if flambeau.cuda.is_available():
        pytest.skip("there is a GPU: the types exist")

    def outcome(library) -> object:
        try:
            return str(library.ones(2).type(library.cuda.FloatTensor if kind == "cuda class" else kind))
        except Exception as problem:
            return type(problem)

    assert outcome(flambeau) == outcome(torch)


def test_a_type_on_a_gpu_says_why_it_is_not_there() -> None:
    if flambeau.cuda.is_available():
        assert flambeau.ones(2).type("torch.cuda.HalfTensor").is_cuda
        return
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.FloatTensor not available.*flambeau\[cuda\]"):
        flambeau.ones(2).type("torch.cuda.FloatTensor")
