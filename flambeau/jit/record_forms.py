"""The TorchScript function of a record: its arguments, and the call of PyTorch's operator that `Op.aten` names.

`F.instance_norm` takes its arguments in another order than PyTorch's operator, `F.relu` chooses between two operators, losses take their
reduction as a string. The declaration describes that (see `ops.machinery.aten_form`); here it becomes the source of a function."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from typing import Any

from ..ops.machinery.aten_form import AtenForm
from ..ops.machinery.schema import REQUIRED, Argument
from ..ops.machinery.schema_table import overloads_of, schema_of

SAID_BY_OTHERS = {"inplace", "size_average", "reduce"}  # arguments that choose the operator or its reduction
_SCRIPTABLE = {"Tensor": "Tensor", "int": "int", "float": "float", "bool": "bool", "str": "str"}
_BASES = {"ScalarType": "int", "Scalar": "float", "SymInt": "int"}


class _Uncovered(Exception):
    """Raised when a form does not cover all calls of the operator."""


@dataclass
class Form:
    """The source of a function. `flag` is the boolean argument that selects it among several, if its value is `chosen`."""

    name: str
    text: str
    flag: str | None = None
    chosen: bool = False


def forms_of(op: Any) -> list[Form]:
    """Return the functions of an operator of nn.functional; none if its declaration does not describe all of its calls."""
    forms = [f for f in op.aten_forms if not f.only_names]
    if not forms and "inplace" in op.arguments and overloads_of(op.aten_name):
        own = ", ".join(a for a in op.arguments if a != "inplace")
        forms = [AtenForm(f"{op.aten_name}({own})")]
    try:
        conditional = [f for f in forms if f.conditions]
        if not conditional:
            return [Form(op.name, _Writer(op, forms[0]).text(op.name))] if forms else []
        flag = next(iter(conditional[0].conditions))
        plain = next(f for f in forms if not f.conditions)
        named = {True: f"{op.name}_with_{flag.removeprefix('return_')}", False: f"_{op.name}"}
        pairs = ((True, conditional[0]), (False, plain))
        return [Form(named[yes], _Writer(op, f, flag).text(named[yes]), flag, yes) for yes, f in pairs]
    except _Uncovered:
        return []


class _Writer:
    """Writes the source of the function of one form, without the argument `flag`."""

    def __init__(self, op: Any, form: AtenForm, flag: str | None = None):
        self.form, self.schema = form, form.schema()
        self.arguments: dict[str, inspect.Parameter] = {n: p for n, p in op.arguments.items() if n != flag}
        self._drop_unmentioned()
        self.types: dict[str, str] = {"inplace": "bool", "size_average": "Optional[bool]", "reduce": "Optional[bool]"}
        self.before: list[str] = []

    def _drop_unmentioned(self) -> None:
        """Drop trailing arguments that the form does not mention: calls with them do not compile."""
        known = self.form.mentioned() | SAID_BY_OTHERS
        while self.arguments and next(reversed(self.arguments)) not in known:
            self.arguments.popitem()
        if not known.issuperset(self.arguments):
            raise _Uncovered

    def text(self, name: str) -> str:
        given = ", ".join(self._given_arguments())
        part = "" if self.form.item is None else f"[{self.form.item}]"
        call = f"aten.{self.form.name}{{}}({given}){part}"
        if "inplace" in self.arguments:
            self.before += ["if inplace:", f"    result = {call.format('_')}"]
            self.before += ["else:", f"    result = {call.format('')}"]
        value = "result" if "inplace" in self.arguments else call.format("")
        body = "\n    ".join([*self.before, f"return {value}"])
        return (
            f"def {name}({', '.join(map(self._declared, self.arguments.values()))}) -> {self._result()}:\n    {body}\n"
        )

    def _declared(self, parameter: inspect.Parameter) -> str:
        own = str(parameter.annotation)
        said = re.fullmatch(r"(\w+)( \| None)?", own)
        kind = self.types[parameter.name]
        if said and said[1] in _SCRIPTABLE and parameter.name != "reduction":
            kind = f"Optional[{said[1]}]" if said[2] else said[1]
        text = f"{parameter.name}: {kind}"
        if parameter.default is inspect.Parameter.empty:
            return text
        default = float(parameter.default) if kind == "float" else parameter.default
        return f"{text} = {default!r}"

    def _result(self) -> str:
        if self.form.item is not None or len(self.schema.returns) == 1:
            return "Tensor"
        return f"Tuple[{', '.join('Tensor' for _ in self.schema.returns)}]"

    # -- what the operator is given ------------------------------------------------------------------------------------------
    def _given_arguments(self) -> list[str]:
        arguments = list(self.schema.arguments)
        found: list[str] = []
        for part in self.form.parts or ():
            made = self._write_part(part, arguments[len(found) :])
            found += made
        return [
            text if not argument.kwarg_only else f"{argument.name}={text}" for text, argument in zip(found, arguments)
        ]

    def _write_part(self, part: Any, arguments: list[Argument]) -> list[str]:
        if isinstance(part, ast.Starred):
            return self._computed_names(part.value)
        if isinstance(part, ast.Name):
            return [self._own_argument(part.id, arguments[0])]
        if isinstance(part, ast.Call):
            return [self._convert_argument(part, arguments[0])]
        # The cuDNN flag in a file is for the program that runs it: allowed.
        return ["True" if arguments[0].name.startswith("cudnn_enable") else ast.unparse(part)]

    def _computed_names(self, call: Any) -> list[str]:
        """Return the names of arguments that another operator computes from tensors, as in `broadcast_tensors`; adds that call."""
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise _Uncovered
        names = [a.id for a in call.args if isinstance(a, ast.Name)]
        self.types.update(dict.fromkeys(names, "Tensor"))
        made = [f"expanded_{n}" for n in names]
        self.before.append(f"{', '.join(made)} = aten.{call.func.id}([{', '.join(names)}])")
        return made

    def _own_argument(self, name: str, argument: Argument) -> str:
        if argument.name == "reduction":
            self.types[name] = "str"
            former = [n for n in ("size_average", "reduce") if n in self.arguments]
            return f"reduction_number({', '.join([name, *former])})"
        kind = _annotation(argument)
        if self.arguments[name].default is None and not argument.is_optional:
            self.before += [f"if {name} is None:", f"    {name} = {_stands_for_none(argument)}"]
            kind = f"Optional[{kind}]"
        self.types[name] = kind
        return name

    def _convert_argument(self, call: Any, argument: Argument) -> str:
        name, words = call.args[0].id, [a.value for a in call.args[1:] if isinstance(a, ast.Constant)]
        if call.func.id in ("filled", "float"):
            self.types[name] = _annotation(argument)
            return name
        if call.func.id != "number":
            raise _Uncovered
        self.types[name] = "str"
        for number, word in enumerate(words):
            self.before += [f"{'el' if number else ''}if {name} == {word!r}:", f"    {name}_number = {number}"]
        self.before += ["else:", f'    raise ValueError(f"{name} must be one of {words}, but got {{{name}}}")']
        return f"{name}_number"


def _annotation(argument: Argument) -> str:
    """Return the type of an argument of PyTorch's operator as a TorchScript annotation."""
    base = _BASES.get(argument.base, argument.base)
    if argument.is_list:
        base = f"List[{base}]" if argument.N is None else f"BroadcastingList{argument.N}[{base}]"
    return f"Optional[{base}]" if argument.is_optional else base


def _stands_for_none(argument: Argument) -> str:
    if argument.default is REQUIRED:
        if argument.base != "bool":
            raise _Uncovered
        return "False"
    return "torch.jit.annotate(List[int], [])" if argument.default == [] else repr(argument.default)


def takes_alike(op: Any, symbol: str) -> bool:
    """Return whether an operator takes the arguments of PyTorch's operator `symbol`, in the same order."""
    name = symbol.removeprefix("aten::")
    own = [n for n in op.arguments if n not in ("out", "generator")]
    for overload in overloads_of(name):
        names = [a.name for a in schema_of(name, overload).arguments if a.name not in ("out", "generator")]
        if [n if n != "self" else own[0] for n in names[: len(own)]] == own:
            return True
    return False


def declares_calls(op: Any) -> bool:
    """Return whether an operator of nn.functional declares, in its own module, the PyTorch operators that it calls."""
    calls = op.aten_calls
    return (
        calls is not None
        and not calls.__code__.co_flags & inspect.CO_VARARGS
        and "nn.functional" in op.namespaces
        and calls.__module__ == op.source.__module__
    )
