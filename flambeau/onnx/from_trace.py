"""Models that are run once and recorded (dynamo=False), as ONNX graphs.

Sizes are numbers with a known origin, so computations with them are recorded. Which sizes may change is found without running the model
again: the recorded operators are run twice on meta tensors, with different values for the dynamic sizes."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import flambeau

from ..core.tensor import Tensor
from ..export._trace import FunctionTarget, Unsupported
from ..export.graph_signature import InputKind
from ..fx.node import Node, map_arg
from .converter import Slot
from .from_export import ProgramReader, _place, operator_of
from .recorded import ARITHMETIC, Recorded, is_needed

# -- which sizes change -----------------------------------------------------------------------------------------------------------


def _another_size(size: int) -> int:
    """Return another size: a small one, so that the effect of limits such as the 100 best is seen."""
    return 2 if size != 2 else 3


class Measured:
    """Shapes of all results for inputs of given sizes. An operator whose result depends on values, or that cannot be run without them,
    keeps its result from the model's run; with `others`, a result of other sizes."""

    def __init__(self, recorded: Any, shapes: dict[str, tuple[int, ...]], others: bool) -> None:
        self.others = others
        self.guessed = False  # whether sizes of a result are those of the model's run because they depend on values
        self.known: dict[Node, Any] = {}
        self.shapes: dict[Node, Any] = {}  # of tensors, before others change them (`unsqueeze_`)
        with flambeau.no_grad():
            for node in recorded.graph.nodes:
                if node.op == "placeholder":
                    self.known[node] = self._input(node, shapes)
                elif node.op == "call_function":
                    self.known[node] = self._called(node)
                    if isinstance(self.known[node], Tensor):
                        self.shapes[node] = tuple(self.known[node].shape)

    def _input(self, node: Node, shapes: dict[str, tuple[int, ...]]) -> Any:
        value = node.meta.get("val")
        if not isinstance(value, Tensor):
            return value
        return flambeau.empty(shapes.get(node.name, tuple(value.shape)), dtype=value.dtype, device="meta")

    def _called(self, node: Node) -> Any:
        args, kwargs = (map_arg(given, self.known.__getitem__) for given in (node.args, node.kwargs))
        if node.target in (operator.getitem, *ARITHMETIC.values()):
            return node.target(*args)
        record = getattr(operator_of(node.target), "op", None)
        if record is not None and record.reads_values:
            along = any(a.name == "dim" for a in node.target._schema.arguments)
            return self._as_recorded(node.meta["val"], first_only=not along)
        if isinstance(node.target, FunctionTarget):
            return self._as_recorded(node.meta["val"])
        args = [flambeau.device("meta") if isinstance(a, flambeau.device) else a for a in args]
        kwargs = {k: "meta" if k == "device" and v is not None else v for k, v in kwargs.items()}
        try:
            return node.target(*args, **kwargs)
        except (RuntimeError, ValueError, IndexError, TypeError):  # it needs values, or other sizes
            return self._as_recorded(node.meta["val"])

    def _as_recorded(self, value: Any, first_only: bool = False) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._as_recorded(v, first_only) for v in value]
        self.guessed = self.guessed or isinstance(value, Tensor)
        if not isinstance(value, Tensor) or not self.others:
            return value
        first_only = first_only and value.dim() <= 2  # places and rows: as many as are found
        shape = [_another_size(s) if i == 0 or not first_only else s for i, s in enumerate(value.shape)]
        return flambeau.empty(shape, dtype=value.dtype, device="meta")


def depends_on_values(program: Any) -> bool:
    """Return whether sizes in a program are what values made them (of masks, of what an operator finds)."""
    branches = any(node.op == "get_attr" for node in program.graph.nodes)
    return not branches and Measured(program, {}, False).guessed


class Changing(NamedTuple):
    """A dynamic size: its name, and another value to try."""

    name: str
    other: int


Sizes = list[dict[int, Changing]]  # for each leaf of the arguments, by dimension


def sizes_of_words(leaves: list[Any], axes: list[dict[int, str]]) -> Sizes:
    """Return the dynamic sizes given by name (`dynamic_axes`): equal names mean equal sizes."""
    others: dict[str, int] = {}
    found: Sizes = []
    for leaf, wanted in zip(leaves, axes):
        for axis, word in wanted.items():
            others.setdefault(word, leaf.shape[axis] + 1 + len(others))
        found.append({axis: Changing(word, others[word]) for axis, word in wanted.items()})
    return found


def mark_sizes(recorded: Recorded, sizes: Sizes) -> None:
    """Record at every node which of its sizes are constant; dynamic sizes of inputs have names."""
    users = [spec.arg.name for spec in recorded.signature.input_specs if spec.kind is InputKind.USER_INPUT]
    nodes = {node.name: node for node in recorded.graph.nodes if node.op == "placeholder"}
    others: dict[str, tuple[int, ...]] = {}
    for name, wanted in zip(users, sizes):
        if wanted:
            shape = nodes[name].meta["val"].shape
            others[name] = tuple(wanted[i].other if i in wanted else s for i, s in enumerate(shape))
            nodes[name].meta["sizes"] = [wanted[i].name if i in wanted else s for i, s in enumerate(shape)]
    first, second = Measured(recorded, {}, False), Measured(recorded, others, True)
    for node, shape in first.shapes.items():
        node.meta["sizes"] = _common_sizes(shape, second.shapes[node])
    for node in recorded.reader.became_floats:
        if first.known[node] != second.known[node]:
            raise Unsupported(
                f"a size that may change becomes a Python float, which would be a constant of the file: {_place(node)}\n"
                "Compute with tensors there, or export without dynamic_axes (dynamic_shapes) for that size."
            )
    recorded.graph.eliminate_dead_code(is_needed)


def _common_sizes(first: Any, second: Any) -> list[int | None]:
    return [a if a == b else None for a, b in zip(first, second)] if len(first) == len(second) else [None] * len(first)


class TraceReader(ProgramReader):
    """Converts the recorded operators, with the names of PyTorch's older exporter."""

    def input_name(self, node: Node) -> str:
        return node.meta.get("variable", "")

    def output_name(self, node: Any, number: int) -> str:
        return ""

    def _name(self, node: Node) -> None:
        """Count the values that PyTorch creates for a list of sizes (three per element), although all are constant: node names contain such
        numbers."""
        made = self.known[node]
        listed = [a for a in node.args if isinstance(a, (list, tuple)) and any(isinstance(n, Node) for n in a)]
        producer = made.value.producer if isinstance(made, Slot) else None
        sizes = producer.inputs[1] if producer is not None and producer.op_type in ("Reshape", "Expand") else None
        if producer is not None and sizes is not None and sizes.constant is not None:
            producer.ghosts = 3 * sum(map(len, listed))
