"""Profiles: which events there are, how they nest, what tables and traces say."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import threading
import warnings

import pytest
from answers import judge

import flambeau
from flambeau import nn
from flambeau.autograd.profiler import emit_nvtx, profile, record_function
from flambeau.autograd.profiler_util import EventList, FunctionEvent
from flambeau.backends.cpu.onednn import library as dnnl
from flambeau.backends.nvidia import cupti
from flambeau.core import modes
from flambeau.profiler import ProfilerAction, ProfilerActivity, schedule, tensorboard_trace_handler
from flambeau.profiler import profile as whole_profile


def network():
    flambeau.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))


def step(model, optimizer=None):
    x = flambeau.ones(2, 1, 8, 8)
    loss = nn.functional.cross_entropy(model(x), flambeau.tensor([0, 1]))
    loss.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()


def names(prof):
    return [event.name for event in prof.function_events]


def test_operators_nest_and_backward_belongs_to_forward():
    model = network()
    optimizer = flambeau.optim.SGD(model.parameters(), lr=0.1)
    with profile() as prof:
        step(model, optimizer)
    found = {event.name: event for event in prof.function_events}
    assert found["aten::addmm"].cpu_parent is found["aten::linear"]
    assert found["aten::convolution"].cpu_parent.name == "aten::conv2d"
    if dnnl.available():
        assert found["onednn::convolution"].cpu_parent.name in ("aten::convolution", "aten::convolution_backward")
    around = found["autograd::engine::evaluate_function: AddmmBackward0"]
    assert found["AddmmBackward0"].cpu_parent is around
    assert found["AddmmBackward0"].sequence_nr == found["aten::addmm"].sequence_nr >= 0
    assert found["aten::mm"].cpu_parent is not None and found["aten::mm"].time_range.start > around.time_range.start
    assert "torch::autograd::AccumulateGrad" in found
    assert {"Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"} <= set(found)
    assert found["Optimizer.step#SGD.step"].is_user_annotation
    assert prof.self_cpu_time_total == pytest.approx(
        sum(e.cpu_time_total for e in prof.function_events if e.cpu_parent is None)
    )
    assert prof.total_average().count == len(prof.function_events)


def test_off_there_is_nothing_to_see():
    before = len(modes.active)
    with profile():
        assert len(modes.active) == before + 1 and modes.observing() is not None
    assert len(modes.active) == before and modes.observing() is None
    with pytest.raises(ZeroDivisionError), profile():
        raise ZeroDivisionError
    assert len(modes.active) == before
    with profile(enabled=False) as nothing:
        flambeau.ones(2)
    assert nothing is None


def test_other_threads_are_not_seen_and_two_profiles_are_refused():
    with profile() as prof:
        worker = threading.Thread(target=lambda: flambeau.ones(2).exp())
        worker.start()
        worker.join()
        with pytest.raises(RuntimeError, match="already enabled"), profile():
            pass
    assert "aten::exp" not in names(prof)


def test_shapes_memory_and_flops():
    with profile(record_shapes=True, profile_memory=True, with_flops=True) as prof:
        x = flambeau.ones(3, 4)
        y = x @ flambeau.ones(4, 5)
        (y + 1).mul_(2)
        del y
    found = {event.name: event for event in prof.function_events}
    assert found["aten::mm"].input_shapes == [[3, 4], [4, 5]]
    assert found["aten::add"].input_shapes == [[3, 5], [], []] and found["aten::add"].concrete_inputs[1] == 1
    assert found["aten::mm"].flops == 2 * 3 * 4 * 5
    assert found["aten::mm"].cpu_memory_usage == 60 and found["aten::matmul"].cpu_memory_usage == 60
    assert found["aten::matmul"].self_cpu_memory_usage == 0
    assert -60 in [event.cpu_memory_usage for event in prof.function_events if event.name == "[memory]"]
    table = prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_memory_usage")
    assert "CPU Mem" in table and "Total FLOPs" in table and "[[3, 4], [4, 5]]" in table


def test_ranges():
    @record_function("decorated")
    def double(x):
        return x * 2

    with profile() as prof:
        with record_function("outer"):
            double(flambeau.ones(2))
        double(flambeau.ones(2))
    found = prof.key_averages()
    assert {e.key: e.count for e in found}["decorated"] == 2
    outer = next(e for e in prof.function_events if e.name == "outer")
    assert [child.name for child in outer.cpu_children] == ["aten::ones", "decorated"]
    with record_function("nobody listens"):
        pass
    ranges = flambeau.ops.profiler
    with profile() as prof:
        handle = ranges._record_function_enter("by function")
        flambeau.ones(1)
        ranges._record_function_exit(handle)
    assert names(prof)[0] == "by function"


def test_a_range_can_end_with_a_future():
    with profile() as prof:
        future = flambeau.futures.Future()
        with record_function("later") as range_:
            done = range_._call_end_callbacks_on_future(future)
        with record_function("next"):
            pass
        future.set_result(3)
        assert done.wait() == 3
    found = {event.name: event for event in prof.function_events}
    assert found["later"].time_range.end >= found["next"].time_range.end and not found["next"].cpu_children
    with pytest.raises(RuntimeError, match="only be called once"):
        range_._call_end_callbacks_on_future(future)


def test_stacks_point_to_the_calling_line(tmp_path):
    with profile(with_stack=True) as prof:
        flambeau.ones(2).exp()
    exp = next(e for e in prof.function_events if e.name == "aten::exp")
    assert exp.stack[0].startswith(__file__) and "test_stacks_point" in exp.stack[0]
    prof.export_stacks(str(tmp_path / "stacks"), "self_cpu_time_total")
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert lines and all(line.rpartition(" ")[2].isdigit() for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(str(tmp_path / "x"), "time")
    by_line = prof.key_averages(group_by_stack_n=1)
    assert any(e.key == "aten::exp" and e.stack == exp.stack[:1] for e in by_line)


def test_autocast_and_subclasses_are_seen_once():
    with profile() as prof, flambeau.autocast("cpu"):
        flambeau.ones(2, 2) @ flambeau.ones(2, 2)
    assert names(prof).count("aten::mm") == 1


# -- the table ------------------------------------------------------------------------------------------------------------


def made_up(module):
    """The same events for either library."""
    kind = module.autograd.profiler_util
    given = [
        (1, "aten::linear", 0, 120.5), (2, "aten::t", 1, 7.25), (3, "aten::addmm", 9.5, 90),
        (4, "a rather long name of something that does not fit into the column", 130, 2500000), (5, "aten::t", 3e6, 3e6 + 1),
    ]  # fmt: skip
    events = []
    for number, name, start, end in given:
        event = kind.FunctionEvent(
            number, name, 1, start, end, overload_name="", fwd_thread=0, stack=[], flops=0,
            input_shapes=[[2, 3], []] if number == 3 else [], cpu_memory_usage=number * 700,
        )  # fmt: skip
        event.flops = 4000 if number == 3 else 0
        events.append(event)
    found = kind.EventList(events, profile_memory=True, with_flops=True)
    found._build_tree()
    return found


OPTIONS = [
    {}, {"sort_by": "cpu_time_total", "row_limit": 2}, {"header": "Title", "top_level_events_only": True}, {"time_unit": "ms"},
    {"max_name_column_width": 20, "max_shapes_column_width": 8}, {"row_limit": -1},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_tables_are_pytorchs_to_the_letter(options):
    torch = judge("torch")
    judge("torch.autograd.profiler_util")
    ours, theirs = made_up(flambeau), made_up(torch)
    assert ours.table(**options) == theirs.table(**options)
    for grouped in (False, True):
        mine, other = ours.key_averages(grouped), theirs.key_averages(grouped)
        assert mine.table(**options) == other.table(**options)
        assert [repr(e) for e in mine] == [repr(e) for e in other]
    assert repr(list(ours)) == repr(list(theirs))


def test_an_event_around_one_of_the_same_name_is_shown_once():
    events = [FunctionEvent(i, "same", 1, i, 10 - i) for i in range(3)]
    found = EventList(events)
    found._build_tree()
    assert len(found) == 1


# -- the schedule ---------------------------------------------------------------------------------------------------------


def test_schedules_are_pytorchs():
    torch = judge("torch")
    for options in (
        {"wait": 1, "warmup": 1, "active": 2, "repeat": 2},
        {"wait": 2, "warmup": 1, "active": 1, "skip_first": 3, "skip_first_wait": 1},
        {"wait": 0, "warmup": 1, "active": 3},
    ):
        mine, theirs = schedule(**options), torch.profiler.schedule(**options)
        assert [mine(i).name for i in range(20)] == [theirs(i).name for i in range(20)]
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        schedule(wait=-1, warmup=1, active=1)


def test_steps_and_traces(tmp_path):
    ready = []
    model = network()

    def on_ready(prof):
        ready.append(prof.step_num)
        tensorboard_trace_handler(str(tmp_path), "worker")(prof)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with whole_profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=on_ready,
            record_shapes=True,
            with_stack=True,
        ) as prof:
            for _ in range(9):
                step(model)
                prof.step()
    assert ready == [4, 8]
    assert {"ProfilerStep*", "nn.Module: Linear_0", "aten::linear"} <= {e.key for e in prof.key_averages()}
    files = sorted(tmp_path.glob("worker.*.pt.trace.json"))
    assert len(files) == 2
    trace = json.loads(files[0].read_text())
    assert trace["schemaVersion"] == 1 and trace["with_stack"] == 1 and trace["record_shapes"] == 1
    events = trace["traceEvents"]
    assert {"ProfilerStep#2", "ProfilerStep#3"} <= {e["name"] for e in events if e.get("cat") == "user_annotation"}
    starts = {e["id"]: e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e.get("cat") == "fwdbwd" and e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    linear = next(e for e in events if e["name"] == "aten::linear")
    assert linear["args"]["Input Dims"] == [[2, 144], [3, 144], [3]] and linear["args"]["Input type"] == ["float"] * 3


def test_incorrect_schedules_warn():
    with pytest.warns(UserWarning, match="RECORD followed by NONE"):
        actions = [ProfilerAction.RECORD, ProfilerAction.NONE, ProfilerAction.NONE]
        with whole_profile(schedule=lambda i: actions[i]) as prof:
            prof.step()
    with pytest.raises(ValueError, match="DEVICE_STOPPED"):
        whole_profile(schedule=lambda i: ProfilerAction.DEVICE_STOPPED)
    with pytest.raises(ValueError, match="more than once"):
        whole_profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CPU])


def test_pictures_and_the_memory_timeline(tmp_path):
    model = network()
    optimizer = flambeau.optim.Adam(model.parameters())
    with whole_profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        step(model, optimizer)
    prof.export_flame_graph(str(tmp_path / "flame.svg"))
    text = (tmp_path / "flame.svg").read_text()
    assert text.startswith("<svg") and "nn.Module: Sequential_0" in text
    with pytest.warns(FutureWarning, match="export_memory_timeline"):
        for name in ("m.svg", "m.html", "m.json", "m.json.gz", "m.raw.json.gz"):
            prof.export_memory_timeline(str(tmp_path / name))
    times, sizes = json.loads((tmp_path / "m.json").read_text())
    assert times == sorted(times) and all(min(row) >= 0 for row in sizes)
    assert max(row[7] for row in sizes) > 0 and max(row[3] for row in sizes) > 0  # optimizer state, activations
    with pytest.raises(ValueError, match="record_shapes=True, with_stack=True required"):
        with whole_profile(profile_memory=True) as other:
            pass
        other._memory_profile()


def test_data_loader_and_execution_trace(tmp_path):
    data = flambeau.utils.data.DataLoader(list(range(4)), batch_size=2)
    observer = flambeau.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    with whole_profile(execution_trace_observer=observer) as prof:
        for batch in data:
            batch + 1
    keys = {e.key: e.count for e in prof.key_averages()}
    assert keys["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"] == 3 and keys["aten::add"] == 2
    nodes = json.loads((tmp_path / "et.json").read_text())["nodes"]
    adding = [n for n in nodes if n["name"] == "aten::add"]
    assert len(adding) == 2 and adding[0]["inputs"]["shapes"][0] == [2] and adding[0]["outputs"]["shapes"] == [[2]]


def test_devices_that_are_not_there():
    if flambeau.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"), profile(use_device="cuda"):
        pass
    with pytest.warns(UserWarning, match="not a valid device option"):
        profile(use_device="moon")
    with pytest.raises((RuntimeError, AssertionError)), emit_nvtx():
        pass


@pytest.mark.parametrize("module", ["flambeau.profiler", "flambeau.utils.bottleneck"])
def test_programs_are_profiled_from_the_command_line(module, tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys, flambeau\nprint(sys.argv[1], flambeau.ones(2, 2).mm(flambeau.ones(2, 2)).sum().item())\n"
    )
    options = ["--out", str(tmp_path)] if module == "flambeau.profiler" else []
    done = subprocess.run(
        [sys.executable, "-m", module, *options, str(tmp_path / "program.py"), "given"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "given 8.0" in done.stdout and "aten::mm" in done.stdout and "Self CPU time total" in done.stdout
    if options:
        assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        assert "aten::mm" in (tmp_path / "flame.svg").read_text()
    else:
        assert "cProfile output" in done.stdout


# -- the GPU, as far as it can be had without one ---------------------------------------------------------------------------


def test_records_of_kernels_are_read():
    recording = object.__new__(cupti.Recording)
    recording._found, recording._calls, recording._offset = [], {}, 1000
    name = ctypes.create_string_buffer(b"_Z3foov")
    kernel = (10, 0, 0, 32, 0, 0, 100, 200, 0, 0, 1, 7, 2, 1, 1, 128, 1, 1, 8, 16, 0, 0, 5, 0, ctypes.addressof(name))
    records = (
        cupti._KERNEL_RECORD.pack(*kernel), cupti._CALL_RECORD.pack(4, 0, 90, 95, 1, 1, 5, 0),
        cupti._COPY_RECORD.pack(1, 1, 0, 0, 0, 64, 300, 310, 0, 1, 7, 6), cupti._SET_RECORD.pack(2, 0, 32, 320, 330, 0, 1, 7, 8),
    )  # fmt: skip
    for record in records:
        held = ctypes.create_string_buffer(record)
        recording.take(ctypes.addressof(held))
    found = [recording._activity(*entry) for entry in recording._found]
    assert [a.name for a in found] in (["foo()", "Memcpy HtoD", "Memset"], ["_Z3foov", "Memcpy HtoD", "Memset"])
    assert (found[0].start, found[0].end, found[0].called, found[1].called) == (1100, 1200, 1090, None)
    assert found[0].details == {
        "registers per thread": 32,
        "shared memory": 24,
        "grid": [2, 1, 1],
        "block": [128, 1, 1],
    }


def test_kernels_belong_to_the_innermost_call():
    with profile() as prof:
        flambeau.ones(2, 2) @ flambeau.ones(2, 2)
    results = prof.kineto_results
    mm = next(note for note in results.notes if note.name == "aten::mm")
    times = mm.start + 1000, mm.start + 5000, mm.start + 1
    results.recorder.activities = [cupti.Activity("gemm", "kernel", *times, 0, 1, 7, 3, {"grid": [4, 1, 1]})]
    results.use_device = prof.use_device = "cuda"
    prof._function_events = None
    found = {event.name: event for event in prof.function_events}
    assert [k.name for k in found["aten::mm"].kernels] == ["gemm"] and not found["aten::matmul"].kernels
    assert found["aten::matmul"].device_time_total == found["gemm"].device_time_total == pytest.approx(4.0)
    assert found["gemm"].event_metadata.grid == [4, 1, 1]
    table = prof.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA %" in table and "Self CUDA time total: 4.000us" in table
    arrows = [e for e in results.trace()["traceEvents"] if e.get("cat") == "ac2g"]
    assert [e["ph"] for e in arrows] == ["s", "f"]
