"""The tree of a profile: Python's calls, modules, operators and memory inside each other."""

from __future__ import annotations

import json
from pathlib import Path

import flambeau as torch
from flambeau.profiler import ProfilerActivity, _utils, profile


def work(x: torch.Tensor) -> float:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    return sum([len([1, 2]), net(x).sum().item()])


def profiled(**options: bool) -> profile:
    with profile(activities=[ProfilerActivity.CPU], **options) as prof:
        work(torch.ones(2, 3))
    return prof


def path_to(name: str, prof: profile) -> list[str]:
    for event in _utils.traverse_dfs(prof.profiler.kineto_results.experimental_event_tree()):
        if event.name == name:
            names = []
            while event is not None:
                names.append(event.name)
                event = event.parent
            return names
    raise AssertionError(f"no {name}")


def test_calls_around_operators() -> None:
    prof = profiled(with_stack=True, record_shapes=True)
    around = path_to("aten::linear", prof)
    assert around[1:3] == ["nn.Module: Linear_0", "nn.Module: Sequential_0"]
    assert around[3].endswith("): work")
    assert path_to("<built-in function len>", prof)[1].endswith("): work")
    assert not any("pathlib" in event.name or "inspect.py" in event.name for event in prof.events())


def test_python_calls_in_traces(tmp_path: Path) -> None:
    prof = profiled(with_stack=True)
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    entries = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert any(e.get("cat") == "python_function" and e["name"].endswith("): work") for e in entries)


def test_nothing_of_python_without_stacks() -> None:
    assert not any("work" in event.name for event in profiled().events())


def test_memory_and_tensors() -> None:
    prof = profiled(profile_memory=True, record_shapes=True)
    events = list(_utils.traverse_bfs(prof.profiler.kineto_results.experimental_event_tree()))
    linear = next(e for e in events if e.name == "aten::linear").extra_fields
    assert [list(t.sizes) for t in linear.inputs] == [[2, 3], [4, 3], [4]]
    assert len({t.id for t in linear.inputs}) == 3
    sizes = [e.extra_fields.alloc_size for e in events if e.tag.name == "Allocation"]
    assert any(s > 0 for s in sizes) and any(s < 0 for s in sizes)


def test_sparse_arguments() -> None:
    with profile(record_shapes=True) as prof:
        torch.eye(3).to_sparse().sum()
    assert len(prof.events()) > 0
