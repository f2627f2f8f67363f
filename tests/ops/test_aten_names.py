"""Each of PyTorch's operators is one of Flambeau's, or named as absent with a reason (absent_aten.txt)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from answers import judge

from flambeau.jit import operators
from flambeau.library.aten.resolver import find
from flambeau.ops import OPS
from flambeau.ops.machinery.schema import parse_schema
from flambeau.ops.machinery.schema_table import aten_names, is_composite, overloads_of, schema_of

# In the table, because exported files may hold them, but nothing runs.
NOT_RUN = {
    "_nested_tensor_from_mask_left_aligned", "nested_to_padded_tensor", "to_padded_tensor",
    "_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward", "sparse_sampled_addmm", "remove", "_unwrap_optional",
}  # fmt: skip


def absent() -> dict[str, str]:
    """The reasons by name."""
    found, reason = {}, ""
    for line in (Path(__file__).parent / "absent_aten.txt").read_text().splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif not line.startswith("#"):
            found.update(dict.fromkeys(line.split(), reason))
    return found


def test_something_runs_for_every_operator_of_the_table() -> None:
    silent = {
        name
        for name in aten_names()
        for overload in overloads_of(name)
        if find(name, overload or "default") is None and operators.find(schema_of(name, overload).key) is None
    }
    assert silent == NOT_RUN


def test_nothing_is_both_there_and_absent() -> None:
    there = {
        schema_of(name, overload).key.removeprefix("aten::") for name in aten_names() for overload in overloads_of(name)
    }
    assert not (there | set(aten_names())) & absent().keys()


def test_every_operator_of_pytorch_is_there_or_named_as_absent() -> None:
    real = judge("torch")
    named, there = absent(), set(aten_names())
    missing = set()
    for schema in real._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space != "aten" or name in named:
            continue
        writes = re.search(r"\*,.*\(\w!\)", str(schema))  # the forms with out=, which the public functions have
        if name not in there or (schema.overload_name not in overloads_of(name) and not writes):
            missing.add(f"{name}.{schema.overload_name}" if schema.overload_name and name in there else name)
    assert missing - named.keys() == set()


def test_pytorch_makes_those_operators_of_others_that_are_marked() -> None:
    real = pytest.importorskip("torch", reason="asks PyTorch's dispatcher")
    wrong = []
    for name in aten_names():
        for overload in overloads_of(name):
            key = f"aten::{name}" + (f".{overload}" if overload else "")
            try:
                known = [
                    real._C._dispatch_has_kernel_for_dispatch_key(key, kind)
                    for kind in ("CompositeImplicitAutograd", "CPU", "AutogradCPU", "CompositeExplicitAutograd")
                ]
            except RuntimeError:  # an operator of TorchScript only
                continue
            if (known[0] and not any(known[1:])) != is_composite(name, overload):
                wrong.append(key)
    assert wrong == []


def test_forms_in_declarations_fit_pytorchs_schemas() -> None:
    wrong = []
    for op in OPS.values():
        for form in op.aten_forms:
            if form.only_names:
                continue
            takes = len(form.schema().arguments)
            given = len(form.parts) + sum(
                len(p.value.args) - 1 for p in form.parts if hasattr(p, "value") and hasattr(p.value, "args")
            )
            if given > takes or not form.mentioned() - {"inplace"} <= set(op.arguments):
                wrong.append((op.key, form.text))
    assert wrong == []


def test_a_form_is_read_in_both_directions() -> None:
    op = OPS["nn.functional.batch_norm"]
    (form,) = op.aten_forms
    own = op.bind((1, 2, 3), {"momentum": 0.5})
    order = [part.id for part in form.parts[:-1]]
    assert order == ["input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"]
    schema = parse_schema(
        "aten::batch_norm(Any a, Any b, Any c, Any d, Any e, bool f, float g, float h, bool i) -> Tensor"
    )
    values = [own[name] for name in order]
    assert form.own(schema, [*values, False], op.defaults) == own
