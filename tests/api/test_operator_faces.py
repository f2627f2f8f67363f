"""Where operators can be called is where PyTorch's can: as functions, methods, in place and with out=, and what they say of their effects."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from answers import judge, told

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
from all_operators import OWN  # noqa: E402

judge("torch")
SPACES = ("torch", "nn.functional", "special", "linalg", "fft")
# Methods of named tensors, which newer versions of PyTorch have no more, the form of `split` that the records hold, and three methods
# beside functions that PyTorch has as functions only.
OURS = {
    "Tensor": {
        *["_split_method", "align_as", "align_to", "conv_tbc", "fill", "refine_names", "rename", "rename_", "saddmm"]
    }
}
READS = {"data_dependent_output", "dynamic_output_shape"}  # tags of PyTorch's operators whose results depend on values
UNTOLD = {"_pack_padded_sequence", "_pad_packed_sequence", "internal.choose_qparams_optimized"}  # which have no tag


def plain_names(op: Any) -> list[str]:
    return [name for name in (op.name, *op.aliases) if "." not in name]


def faces(space: str) -> list[str]:
    """The names under which a namespace offers operators."""
    found: set[str] = set()
    for op in OWN:
        if space in op.namespaces:
            found.update(plain_names(op))
        if op.method is not None and space == "Tensor":
            found.update(plain_names(op))
        if op.method is not None and op.inplace is not None and space == "Tensor":
            found.update(f"{name}_" for name in plain_names(op))
    return sorted(found)


def pytorchs(space: str) -> list[str]:
    """The names of a namespace of PyTorch's."""
    place: Any = sys.modules["torch"]
    for part in space.split(".") if space != "torch" else ():
        place = getattr(place, part)
    return dir(place)


@pytest.mark.parametrize("space", [*SPACES, "Tensor"])
def test_no_name_is_ours_alone(space: str) -> None:
    theirs = told(f"names of {space}", lambda: pytorchs(space))
    ours = faces(space)
    assert len(ours) > 20
    assert set(ours) - set(theirs) - OURS.get(space, set()) == set()


def aten_facts() -> dict[str, list[Any]]:
    """By the name of an operator of PyTorch's: whether it writes into out=, and its tags."""
    aten = sys.modules["torch"].ops.aten  # type: ignore[attr-defined]
    found: dict[str, list[Any]] = {}
    for name in sorted({f"{prefix}{op.name}" for op in OWN for prefix in ("", "linalg_", "fft_", "special_")}):
        packet = getattr(aten, name, None)
        overloads = [getattr(packet, each) for each in packet.overloads()] if packet is not None else []
        tags = sorted({str(tag).rpartition(".")[2] for each in overloads for tag in each.tags})
        if overloads:
            found[name] = [any(a.is_out for each in overloads for a in each._schema.arguments), tags]
    return found


def known_to_both() -> list[tuple[Any, bool, set[str]]]:
    theirs = told("facts of aten", aten_facts)
    found = []
    for op in OWN:
        space = op.namespaces[0] if op.namespaces else "Tensor"
        name = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}.get(space, "") + op.name
        if space in (*SPACES, "Tensor") and (name in theirs or op.name in theirs):
            out, tags = theirs.get(name) or theirs[op.name]
            found.append((op, out, set(tags)))
    assert len(found) > 500
    return found


def test_out_is_taken_only_where_pytorch_takes_it() -> None:
    assert [op.key for op, out, _ in known_to_both() if op.has_out and not out] == []


def test_operators_say_that_they_read_values_where_pytorchs_do() -> None:
    """A composite need not: the operators that it calls say so."""
    both = known_to_both()
    ours = {op.key for op, _, _ in both if op.reads_values}
    theirs = {op.key for op, _, tags in both if tags & READS}
    composites = {op.key for op, _, _ in both if op.kind == "composite"}
    assert ours - theirs <= UNTOLD
    assert {"argwhere", "item", "masked_select"} <= ours & theirs
    assert theirs - ours - composites <= {"internal.index"}  # which reads masks, and does so before it is called
