"""Code of graphs whose inputs and outputs are trees of values: flattened on entry, rebuilt on return."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..utils import _pytree as pytree
from .codegen import CodeGen


class _PyTreeInfo(NamedTuple):
    """Structure of a function's nested arguments and result."""

    orig_args: list[str]
    in_spec: Any
    out_spec: Any


class _PyTreeCodeGen(CodeGen):
    """Generates a function whose arguments and result are nested; the graph sees their leaves."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.tree_leaves(inputs)

    def process_outputs(self, out: Any) -> Any:
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return out
        leaves = out if isinstance(out, (list, tuple)) else [out]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation, expanded_def=expanded_def)
        names = self.pytree_info.orig_args
        if names and names[0] == "self":
            free_vars.insert(0, "self")
        text = super().gen_fn_def(names[:], maybe_return_annotation, expanded_def=expanded_def)
        return text + self.gen_var_bindings(names, free_vars, expanded_def) if free_vars else text

    def _annotations(self, free_vars: list[str], expanded_def: bool) -> str:
        """Return lines that annotate the variables, because an assignment to several names cannot have annotations."""
        annotated = [v for v in free_vars if ":" in v]
        if not annotated:
            return ""
        if expanded_def:
            return "\n    " + "\n    ".join(annotated)
        return "\n    " + "".join(f"{v}; " for v in annotated) + "\n"

    def _flatten_call(self, names: list[str]) -> str:
        spec = self.pytree_info.in_spec
        children = spec.children() if hasattr(spec, "children") else spec.children_specs
        if spec.type is tuple and len(children) == 2 and children[0].type is tuple and children[1].type is dict:
            count = children[0].num_children
            all_names = self.pytree_info.orig_args
            named = ", ".join(f"'{k}':{v}" for k, v in zip(children[1].context, all_names[count:]))
            return f"([{', '.join(all_names[:count])}], {{{named}}}), self._in_spec"
        return f"[{', '.join(names)}], self._in_spec"

    def gen_var_bindings(self, fn_args: list[str], free_vars: list[str], expanded_def: bool) -> str:
        """Return the line of code that flattens the arguments."""
        plain = ", ".join(v.split(":")[0].split("#")[0] for v in free_vars)
        call = f"fx_pytree.tree_flatten_spec({self._flatten_call(fn_args)})"
        return f"{self._annotations(free_vars, expanded_def)}\n    {plain}, = {call}"

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        if not (self.pytree_info and self.pytree_info.out_spec):
            return super().generate_output(output_args, descs=descs, repr_fn=repr_fn)
        values = self._output_text(output_args, descs, repr_fn or repr)
        return f"return pytree.tree_unflatten({values}, self._out_spec)"
