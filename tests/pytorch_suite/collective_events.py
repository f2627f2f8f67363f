"""A profiler that sees nothing but collectives, for tests that profile them while Flambeau has none."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any


class profile:
    """Lists the operations of process groups that ran inside."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.function_events: list = []

    def _see(self, name: str, shapes: list, begin: float, end: float) -> None:
        event = SimpleNamespace(name=name, is_async=True, count=1, cpu_time=end - begin, input_shapes=shapes)
        event.device_type = "cpu"
        self.function_events.append(event)

    def __enter__(self) -> profile:
        from flambeau.distributed.process_group import observers

        observers.append(self._see)
        return self

    def __exit__(self, *details: Any) -> None:
        from flambeau.distributed.process_group import observers

        observers.remove(self._see)

    def events(self) -> list:
        return self.function_events


def install(torch: Any) -> None:
    import sys

    for name, owner in (("torch.autograd.profiler", torch.autograd), ("torch.profiler", torch)):
        module = ModuleType(name)
        module.profile = profile  # type: ignore[attr-defined]
        module.ProfilerActivity = SimpleNamespace(CPU="cpu", CUDA="cuda")  # type: ignore[attr-defined]
        module.ExecutionTraceObserver = object  # type: ignore[attr-defined]
        sys.modules[name] = sys.modules[name.replace("torch", "flambeau", 1)] = module
        setattr(owner, name.rpartition(".")[2], module)
    torch.autograd.DeviceType = SimpleNamespace(CPU="cpu", CUDA="cuda", XPU="xpu")
