"""Signature of an exported program: the meaning of its inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

__all__ = [
    "ConstantArgument", "CustomObjArgument", "ExportBackwardSignature", "ExportGraphSignature", "InputKind",
    "InputSpec", "OutputKind", "OutputSpec", "SymBoolArgument", "SymFloatArgument", "SymIntArgument",
    "TensorArgument", "TokenArgument",
]  # fmt: skip


@dataclass
class TensorArgument:
    """A tensor, by the name of its node."""

    name: str


@dataclass
class TokenArgument:
    """Token argument that orders effects."""

    name: str


@dataclass
class SymIntArgument:
    """A symbolic integer, known when the program runs."""

    name: str


@dataclass
class SymFloatArgument:
    """A symbolic float, known when the program runs."""

    name: str


@dataclass
class SymBoolArgument:
    """A symbolic bool, known when the program runs."""

    name: str


@dataclass
class CustomObjArgument:
    """An object of a TorchScript class."""

    name: str
    class_fqn: str
    fake_val: Any = None


@dataclass
class ConstantArgument:
    """A value that the program was specialised to."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec = Any


class InputKind(Enum):
    """Kind of an input of an exported graph: given by the user, a parameter, a buffer, a constant, an object or a token."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


@dataclass
class InputSpec:
    """An input of the graph: `target` is the parameter's or buffer's path in the original module."""

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise AssertionError("Failed to specify persistent flag on BUFFER.")

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


class OutputKind(Enum):
    """Kind of an output of an exported graph: returned to the user, a loss, a gradient, or a value written back to an input."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclass
class OutputSpec:
    """An output of the graph; `target` is the buffer, parameter or input it updates, if it is not a user output."""

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target='{self.target}'"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclass
class ExportBackwardSignature:
    """Names of the outputs that are gradients of parameters and of user inputs, and of the loss."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


def _value(arg: ArgumentSpec) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name


@dataclass
class ExportGraphSignature:
    """The inputs and outputs of an exported program's graph, in order: parameters, buffers, constants and the user's inputs;
    changed buffers and inputs, and the user's outputs."""

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _inputs(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self.input_specs if s.kind is kind}

    def _outputs(self, kind: OutputKind) -> dict[str, str]:
        return {s.arg.name: s.target or "" for s in self.output_specs if s.kind is kind}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Paths of the parameters."""
        return tuple(self._inputs(InputKind.PARAMETER).values())

    @property
    def buffers(self) -> tuple[str, ...]:
        """Paths of the buffers."""
        return tuple(self._inputs(InputKind.BUFFER).values())

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        specs = (s for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False)
        return tuple(s.target or "" for s in specs)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return tuple(self._inputs(InputKind.CONSTANT_TENSOR).values())

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        return tuple(self._inputs(InputKind.CUSTOM_OBJ).values())

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        return tuple(_value(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        kinds = (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        return tuple(_value(s.arg) for s in self.output_specs if s.kind in kinds)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        return self._inputs(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        return self._inputs(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        return self._inputs(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        return self._inputs(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        return self._outputs(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        return self._outputs(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        return self._outputs(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        loss = next((s.arg.name for s in self.output_specs if s.kind is OutputKind.LOSS_OUTPUT), None)
        if loss is None:
            return None
        parameters = self._outputs(OutputKind.GRADIENT_TO_PARAMETER)
        return ExportBackwardSignature(parameters, self._outputs(OutputKind.GRADIENT_TO_USER_INPUT), loss)

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        return None

    @property
    def input_tokens(self) -> tuple[str, ...]:
        return tuple(self._inputs(InputKind.TOKEN))

    @property
    def output_tokens(self) -> tuple[str, ...]:
        return tuple(self._outputs(OutputKind.TOKEN))

    def replace_all_uses(self, old: str, new: str) -> None:
        """Rename a node in the signature."""
        specs: list[Any] = [*self.input_specs, *self.output_specs]
        for spec in specs:
            if getattr(spec.arg, "name", None) == old:
                spec.arg.name = new

    def get_replace_hook(self, replace_inputs: bool = False) -> Any:
        """Return a hook for a GraphModule that updates the signature when nodes are replaced."""

        def hook(old: Any, new: str, user: Any) -> None:
            if user.op == "output" or (replace_inputs and old.op == "placeholder"):
                self.replace_all_uses(old.name, new)

        return hook

    def __str__(self) -> str:
        inputs = "\n".join(map(str, self.input_specs))
        outputs = "\n".join(map(str, self.output_specs))
        return f"\n# inputs\n{inputs}\n\n# outputs\n{outputs}\n"
