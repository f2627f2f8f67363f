"""Counting collectives."""

from __future__ import annotations

from typing import Any

from .... import _ops
from ....autograd.engine import running
from ....nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from ... import _functional_collectives as funcol
from ... import _functional_ops  # noqa: F401 - makes the operators that are counted by
from .._api import DTensor


class CommDebugMode:
    """Inside a `with` block, counts the functional collectives that this thread starts: all of them, and for each module.

    >>> with CommDebugMode() as comm:
    ...     model(batch)
    >>> comm.get_comm_counts()
    """

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, dict[Any, int]]] = {}  # by module, and by pass
        self._inside: list[str] = []
        self._names: dict[int, str] = {}
        self._parameters: dict[str, dict[str, Any]] = {}
        self._placements: dict[str, dict[str, Any]] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> CommDebugMode:
        self.__init__()  # type: ignore[misc]
        self._inside = ["Global"]
        funcol.listeners.found.append(self._count)
        self._hooks = [
            register_module_forward_pre_hook(self._begin),
            register_module_forward_hook(self._end, always_call=True),
        ]
        return self

    def __exit__(self, *details: Any) -> None:
        funcol.listeners.found.remove(self._count)
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: Any, inputs: Any) -> None:
        name = self._names.setdefault(id(module), type(module).__name__)
        if len(self._inside) == 1:
            for path, part in module.named_modules():
                self._names[id(part)] = f"{type(module).__name__}.{path}" if path else type(module).__name__
            name = self._names[id(module)]
        self._inside.append(name)
        for key, param in module.named_parameters(recurse=False):
            self._parameters.setdefault(name, {})[key] = param.data
            if isinstance(param, DTensor):
                self._placements.setdefault(name, {})[key] = param.placements

    def _end(self, module: Any, inputs: Any, outputs: Any) -> None:
        if len(self._inside) > 1:
            self._inside.pop()

    def _count(self, name: str) -> None:
        space, _, name = name.rpartition(".")
        operator = getattr(getattr(_ops.ops, space or "c10d_functional"), name)
        phase = "forward" if running.current is None else "backward"
        for module in dict.fromkeys(self._inside):
            counts = self.comm_module_counts.setdefault(module, {"forward": {}, "backward": {}})[phase]
            counts[operator] = counts.get(operator, 0) + 1

    @property
    def comm_module_counts(self) -> dict[str, dict[str, dict[Any, int]]]:
        """The same for each module that was called, in the passes forward and backward."""
        return self._counts

    @property
    def comm_counts(self) -> dict[Any, int]:
        return self.get_comm_counts()

    def get_comm_counts(self) -> dict[Any, int]:
        """How often each collective was started."""
        total = _Counts()
        for counts in self._counts.get("Global", {}).values():
            for operator, count in counts.items():
                total[operator] += count
        return total

    def get_total_counts(self) -> int:
        """How many collectives were started."""
        return sum(self.get_comm_counts().values())

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """The parameters of the modules that were called."""
        return self._parameters

    def get_sharding_info(self) -> dict[str, dict[str, Any]]:
        """How the parameters of the modules that were called lie."""
        return self._placements

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """A table of modules and the collectives of each."""
        lines = []
        for module, counts in self._counts.items():
            depth = module.count(".") + (module != "Global")
            lines.append("  " * depth + module)
            for phase, found in counts.items():
                lines += [f"{'  ' * (depth + 1)}{phase} *{operator}: {count}" for operator, count in found.items()]
        return "\n".join(lines)

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        with open(file_name, "w") as file:
            file.write(self.generate_comm_debug_tracing_table(noise_level))

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"


class _Counts(dict):
    """Collectives that were not started count 0."""

    def __missing__(self, key: Any) -> int:
        return 0
