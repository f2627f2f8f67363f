"""Nested tensors in checkpoints, of both layouts: written and read by PyTorch and here; files that lie about them."""

from __future__ import annotations

import io

import pytest

import flambeau
from flambeau.serialization import rebuild

ROWS = [[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0]]]
KINDS = {
    "strided": lambda t: t.nested.nested_tensor([t.tensor(row) for row in ROWS]),
    "transposed": lambda t: t.nested.nested_tensor([t.tensor(row) for row in ROWS]).transpose(1, 2),
    "jagged": lambda t: t.nested.nested_tensor([t.tensor(row) for row in ROWS], layout=t.jagged),
    "jagged that needs a gradient": lambda t: t.nested.nested_tensor([t.tensor(row) for row in ROWS], layout=t.jagged, requires_grad=True),
    "jagged with gaps": lambda t: t.nested.narrow(t.arange(10.0).reshape(2, 5), 1, t.tensor([0, 2]), t.tensor([3, 1]), layout=t.jagged),
}  # fmt: skip


def same(first, second):
    assert [row.tolist() for row in first.unbind()] == [row.tolist() for row in second.unbind()]
    assert (first.is_nested, str(first.layout), first.requires_grad) == (
        second.is_nested,
        str(second.layout),
        second.requires_grad,
    )


def saved(library, value, **options):
    file = io.BytesIO()
    library.save({"state": [value]}, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zipped", [True, False])
def test_they_come_back(kind, zipped):
    made = KINDS[kind](flambeau)
    same(flambeau.load(saved(flambeau, made, _use_new_zipfile_serialization=zipped))["state"][0], made)


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_pytorchs(kind):
    torch = pytest.importorskip("torch", reason="the real PyTorch writes and reads the files")
    pytest.importorskip("torch._dynamo", reason="PyTorch reads nested tensors with it only")
    made = KINDS[kind](flambeau)
    same(torch.load(saved(flambeau, made))["state"][0], made)
    same(flambeau.load(saved(torch, KINDS[kind](torch)))["state"][0], made)


def test_parts_that_do_not_fit_are_refused():
    buffer, numbers = flambeau.arange(4.0), flambeau.tensor
    fitting = (buffer, numbers([[2], [2]]), numbers([[1], [1]]), numbers([0, 2]))
    assert [row.tolist() for row in rebuild.nested_tensor(*fitting)] == [[0, 1], [2, 3]]
    for place, wrong in ((3, numbers([0, 3])), (2, numbers([[1], [9]])), (1, numbers([[2], [-2]])), (3, buffer), (0, [1.0]), (1, numbers([2, 2]))):  # fmt: skip
        with pytest.raises(RuntimeError, match="corrupt|not inside|needs"):
            rebuild.nested_tensor(*(wrong if i == place else part for i, part in enumerate(fitting)))
    parts = {"values": buffer, "offsets": numbers([0, 1, 4]), "_ragged_idx": 1, "lengths": None, "requires_grad": False}
    assert [row.tolist() for row in rebuild.jagged_tensor(parts)] == [[0], [1, 2, 3]]
    for name, wrong in (("offsets", numbers([0, 1, 9])), ("lengths", numbers([1, 8])), ("_ragged_idx", 3), ("values", None), ("offsets", buffer)):  # fmt: skip
        with pytest.raises(RuntimeError, match="corrupt|rise from|not inside"):
            rebuild.jagged_tensor({**parts, name: wrong})
    with pytest.raises(RuntimeError, match="cannot become"):
        rebuild.from_type(rebuild.jagged_tensor, flambeau.nn.Parameter, (parts,), {})
    with pytest.raises(RuntimeError, match="are no bounds"):
        rebuild.DimRange().__setstate__([1, "2", None])
