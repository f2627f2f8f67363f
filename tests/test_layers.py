"""The rooms of the library are in one order: a module imports its own room and those below it, never one above.

Imports inside functions count as those at the top do. What a room needs of one above, it takes from there when it is asked for
(`core/naming.py`), never by an import."""

from __future__ import annotations

import pytest

from tests import import_graph

# Every room, lowest first; `flambeau` is the root package with the names it has from the start.
ORDER = [
    "core", "expr", "kernels", "backends", "ops", "backends.nvidia.operators", "autograd", "graph",
    "torch_version", "compat", "random", "flambeau",
    "masked", "fft", "linalg", "special", "signal", "sparse", "functional", "return_types", "symbolic", "quasirandom", "nested", "types",
    "nn", "optim", "amp", "serialization", "storage", "safetensors", "library", "overrides", "distributions", "multiprocessing", "futures", "config", "utils", "profiler", "func", "hub",
    "cpu", "mps", "xpu", "mtia", "numa", "package",
    "compiler", "fx", "export", "jit", "ao", "vision", "onnx", "cpp",
    "compat.as_torch", "distributed", "testing", "cuda", "accelerator", "installed", "horovod", "serve",
    "compat.private", "commands", "cli", "demo", "version",
]  # fmt: skip


def test_every_room_has_its_place() -> None:
    assert len(set(ORDER)) == len(ORDER)
    assert set(ORDER) == import_graph.rooms() | {import_graph.PACKAGE}


@pytest.mark.parametrize("room", ORDER)
def test_nothing_is_imported_from_above(room: str) -> None:
    above = set(ORDER[ORDER.index(room) + 1 :])
    wrong = [str(each) for other, found in import_graph.edges()[room].items() if other in above for each in found]
    assert not wrong
