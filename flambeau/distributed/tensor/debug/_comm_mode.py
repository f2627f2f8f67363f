"""Counts of collectives, and of operators on DTensors, for each module."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from .... import _ops
from ....autograd.engine import running
from ....nn.modules.module import register_module_forward_pre_hook, register_module_full_backward_pre_hook
from ... import _functional_collectives as funcol
from .._dispatch import Call, switches
from .._dtensor import DTensor

_COLOURS = re.compile(r"\033\[[0-9;]*m")
_TRIVIAL = ("detach", "t", "view", "_to_copy", "as_strided", "transpose")  # trivial operators


@dataclass
class _Seen:
    """Record of a module: its position among the others, and its operations in each pass."""

    name: str
    depth: int = 0
    parents: tuple[str, ...] = ()
    kind: str = ""
    placements: dict[str, str] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)

    def done(self, phase: str, noise_level: int) -> list[dict[str, Any]]:
        """Return the operations of a pass: none, the important ones, or all."""
        found = [op for op in self.operations if op["phase"] == phase] if noise_level > 0 else []
        return [op for op in found if noise_level > 2 or op["name"].split(".")[1] not in _TRIVIAL]


class CommDebugMode:
    """Context manager: count the functional collectives that this thread starts, in total and for each module, and record the operators
    that are called with DTensors.

    >>> with CommDebugMode() as comm:
    ...     model(batch)
    >>> comm.get_comm_counts()
    """

    def __init__(self) -> None:
        self.comm_counts: dict[Any, int] = defaultdict(int)
        self.comm_module_counts: dict[str, dict[str, dict[Any, int]]] = {}
        self._seen: dict[str, _Seen] = {}
        self._inside: list[str] = ["Global"]
        self._backward = "Global"  # the module whose backward pass runs
        self._names: dict[int, str] = {}
        self._parameters: dict[str, dict[str, Any]] = {}
        self._placements: dict[str, Any] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> CommDebugMode:
        CommDebugMode.__init__(self)
        self._seen["Global"] = _Seen("Global")
        self._counts_of("Global")
        funcol.listeners.found.append(self._count)
        switches.watchers = (*switches.watchers, self._note)
        self._hooks = [
            register_module_forward_pre_hook(self._begin),
            register_module_full_backward_pre_hook(self._begin_backward),
        ]
        return self

    def __exit__(self, *details: Any) -> None:
        funcol.listeners.found.remove(self._count)
        switches.watchers = tuple(w for w in switches.watchers if w != self._note)
        for hook in self._hooks:
            hook.remove()

    # -- what happens -----------------------------------------------------------------------------------------------------------

    def _name_of(self, module: Any) -> str:
        if id(module) not in self._names:
            root = type(module).__name__
            for path, part in module.named_modules():
                self._names.setdefault(id(part), f"{root}.{path}" if path else root)
        return self._names[id(module)]

    def _begin(self, module: Any, inputs: Any) -> None:
        name = self._name_of(module)
        if name not in self._seen:
            outer = self._seen[self._inside[-1]]
            kind = str(type(module)).strip("<>")
            self._seen[name] = _Seen(name, len(self._inside), (*outer.parents, outer.name), kind)
            outer.children.append(name)
            self._note_parameters(name, module)
            # Behind the module's other hooks, which belong to it: they move what comes out.
            self._hooks.append(module.register_forward_hook(self._end, always_call=True))
        self._inside.append(name)

    def _note_parameters(self, name: str, module: Any) -> None:
        for key, param in module.named_parameters(recurse=False):
            self._parameters.setdefault(name, {})[key] = param.data
            if isinstance(param, DTensor):
                self._placements[f"{name}.{key}"] = param.placements
                self._seen[name].placements[key] = str(param.placements)

    def _end(self, module: Any, inputs: Any, outputs: Any) -> None:
        if len(self._inside) > 1:
            self._inside.pop()

    def _begin_backward(self, module: Any, gradients: Any) -> None:
        self._backward = self._name_of(module)

    def _where(self) -> tuple[_Seen, str]:
        """Return the current module and pass: forward, backward, or recomputation of the forward pass."""
        if running.current is None:
            return self._seen[self._inside[-1]], "forward"
        if len(self._inside) > 1:
            return self._seen[self._inside[-1]], "checkpointing"
        return self._seen.get(self._backward, self._seen["Global"]), "backward"

    def _counts_of(self, name: str) -> dict[str, dict[Any, int]]:
        return self.comm_module_counts.setdefault(name, {"forward": defaultdict(int), "backward": defaultdict(int)})

    def _count(self, name: str) -> None:
        space, _, name = name.rpartition(".")
        operator = getattr(getattr(_ops.ops, space or "c10d_functional"), name)
        module, phase = self._where()
        self.comm_counts[operator] += 1
        for one in (*module.parents, module.name):
            self._counts_of(one)["forward" if phase == "forward" else "backward"][operator] += 1

    def _note(self, call: Call) -> None:
        module, phase = self._where()
        given = call.tensors
        module.operations.append(
            {
                "name": call.name,
                "phase": phase,
                "input_shape": [str(t.shape) for t in given],
                "input_sharding": [str(t.placements) for t in given],
                "device_mesh": str(call.mesh),
            }
        )

    @property
    def advanced_module_tracker(self) -> Any:
        """PyTorch's module tracker, with its attribute names."""
        helpers = {
            name: {"module_type": seen.kind, "depth": seen.depth, "parameters": seen.placements}
            for name, seen in self._seen.items()
        }
        return SimpleNamespace(
            module_helper_dict=helpers,
            module_parameters_dict=self._parameters,
            sharding_dict=self._placements,
            module_parents_dict={name: set(seen.parents) for name, seen in self._seen.items()},
            parent_dict={name: seen.children for name, seen in self._seen.items() if seen.children},
        )

    # -- what has happened ----------------------------------------------------------------------------------------------------------

    def get_comm_counts(self) -> dict[Any, int]:
        """Return the number of times each collective was started."""
        return self.comm_counts

    def get_total_counts(self) -> int:
        """Return the number of collectives that were started."""
        return sum(self.comm_counts.values())

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """Return the parameters of the modules that were called."""
        return self._parameters

    def get_sharding_info(self) -> dict[str, Any]:
        """Return the placements of the parameters of all modules that were called, by name."""
        return self._placements

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """Return a table of modules and the collectives of each. `noise_level`: 0 for collectives only, 1 and 2 with the modules'
        parameters and operators that were called with DTensors, 3 with trivial ones, too."""
        return "".join(line + "\n" for seen in self._seen.values() for line in self._lines(seen, noise_level))

    def _lines(self, seen: _Seen, noise_level: int) -> list[str]:
        indent = "    " * seen.depth
        lines = [f"{indent}{seen.name}"]
        if noise_level > 0 and seen.kind:
            lines.append(f"{indent}*module type: {seen.kind}")
            if seen.placements:
                lines.append(f"{indent}*Parameter List")
                lines += [f"{indent} *{key}: {placements}" for key, placements in seen.placements.items()]
        counts = self.comm_module_counts.get(seen.name, {})
        titles = {"forward": "FORWARD PASS", "backward": "BACKWARD PASS", "checkpointing": "ACTIVATION CHECKPOINTING"}
        for phase, title in titles.items():
            collectives, operations = counts.get(phase, {}), seen.done(phase, noise_level)
            if not collectives and not operations:
                continue
            lines.append(f"{indent}  {title}")
            lines += [f"\033[1;33m{indent}    *{operator}: {count}\033[0m" for operator, count in collectives.items()]
            for op in operations:
                lines.append(f"\033[1;33m{indent}    **{op['name']}\033[0m")
                for what, key in (
                    ("shape", "input_shape"),
                    ("sharding", "input_sharding"),
                    ("device mesh", "device_mesh"),
                ):
                    value = op[key] if isinstance(op[key], str) else f"[{', '.join(op[key])}]"
                    lines.append(f"\033[1;31m{indent}      {what}: {value}\033[0m")
        return lines

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        """Write the table to a file, without colours."""
        with open(file_name, "w") as file:
            file.write(_COLOURS.sub("", self.generate_comm_debug_tracing_table(noise_level)))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Write the collectives as a tree of modules to a JSON file, for programs that draw it."""
        with open(file_name, "w") as file:
            json.dump(self._tree("Global", noise_level), file, indent=4)

    def _tree(self, name: str, noise_level: int) -> dict[str, Any]:
        seen, counts = self._seen[name], self.comm_module_counts.get(name, {})
        shown = noise_level > 0
        found: dict[str, Any] = {
            "fqn": name,
            "module_type": seen.kind if shown else "",
            "parameters": list(seen.placements.items()) if shown else [],
            "children": [self._tree(child, noise_level) for child in seen.children],
        }
        for phase in ("forward", "backward"):
            found[f"collectives_{phase}"] = [(str(op), count) for op, count in counts.get(phase, {}).items()]
        for phase in ("forward", "backward", "checkpointing"):
            found[f"operations_{phase}"] = seen.done(phase, noise_level)
        return found

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"
