"""Compiled functions notice every change of Python's state that they read, however they read it."""

from __future__ import annotations

import argparse
import collections
import copy
import cProfile
import gc
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import flambeau
from flambeau import nn
from flambeau.compiler.state import event_filter
from flambeau.compiler.state import observer as observer_room
from flambeau.compiler.state.object_layouts import dict_rows, word
from flambeau.compiler.state.observer import NewCode, Observer

from . import state_programs
from .helpers import SETTLED

_PROGRAMS = dict(state_programs.programs())
# What cannot be watched: these run as they are, or in parts, and `explain()` says why.
_REFUSED = (
    "a weak reference", "an array", "a numpy array", "a ctypes number", "random.random", "numpy.random under a name", "np.load", "time",
    "a ContextVar", "threading.local", "itertools.count", "a generator that goes on", "gc", "print", "__subclasses__",
)  # fmt: skip
_NATIVE = (
    "a UserDict's entry", "a NamedTuple's method reads a global", "an Enum's method", "a frozen dataclass", "a Namespace", "str of an object",
    "a Namespace beside a scheduler", "a frozen dataclass beside a training step", "os.environ", "asdict", "deepcopy of an object",
    "a method put on Tensor", "functools.wraps around the library's", "an attribute of a module", "a count in a module",
)  # fmt: skip


@pytest.mark.parametrize("name", _PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    eager, compiled, how = state_programs.compare(name, _PROGRAMS[name], str(tmp_path))
    assert eager == compiled
    short = name.partition(": ")[2]
    assert how == "native" or short not in _NATIVE
    assert how != "native" or short not in _REFUSED


def test_most_programs_run_natively() -> None:
    assert set(_NATIVE) | set(_REFUSED) <= {name.partition(": ")[2] for name in _PROGRAMS}
    assert len(_PROGRAMS) > 400


def test_code_of_the_library_is_known_as_such() -> None:
    """Also what it makes of texts: none of it is taken for a user's."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3), nn.Dropout()
    )
    optimizer = flambeau.optim.AdamW(model.parameters())
    attention = nn.MultiheadAttention(4, 2)
    observer = Observer()

    def step() -> None:
        optimizer.zero_grad()
        model(flambeau.randn(2, 1, 8, 8)).sum().backward()
        optimizer.step()
        attention(*[flambeau.randn(3, 1, 4)] * 3)[0].cumsum(0).sort(dim=0)

    with observer.watching():
        step()
    ran = {one.code for one in observer.ran.values() if one.code.co_name != "__exit__"}  # of `watching` itself
    assert ran == {step.__code__} and not observer.refused


def test_what_an_import_does_is_not_what_the_function_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_for_an_import.py").write_text("import time\nstarted = time.time()\nfactor = 2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    def scaled(x: Any) -> Any:
        import made_for_an_import  # type: ignore[import-not-found]

        return x * made_for_an_import.factor

    compiled = flambeau.compile(scaled)
    for _ in range(SETTLED):
        assert compiled(flambeau.ones(1)).item() == 2
    assert state_programs.how(compiled) == "native"
    sys.modules["made_for_an_import"].factor = 5.0  # type: ignore[attr-defined]
    assert compiled(flambeau.ones(1)).item() == 5


def test_profilers_of_users_see_what_they_saw() -> None:
    compiled = flambeau.compile(lambda x: abs(-2) * x)
    seen: list[Any] = []
    sys.setprofile(lambda frame, event, arg: seen.append(arg) if event == "c_call" else None)
    try:
        for _ in range(SETTLED):
            compiled(flambeau.ones(1))
        mine = sys.getprofile()
    finally:
        sys.setprofile(None)
    assert mine is not None and abs in seen and state_programs.how(compiled) == "native"


def test_a_profiler_in_c_keeps_its_place() -> None:
    compiled = flambeau.compile(lambda x: x * 2)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(SETTLED):
        compiled(flambeau.ones(1))
    profiler.disable()
    assert profiler.getstats()
    for _ in range(SETTLED):
        assert compiled(flambeau.ones(1)).item() == 2
    assert state_programs.how(compiled) == "native"


def test_an_objection_names_what_is_called() -> None:
    import time

    compiled = flambeau.compile(lambda x: x * (1 if time.time() else 2))
    with pytest.warns(UserWarning, match=r"time\.time\(\) is called, which may give something else in each call"):
        for _ in range(SETTLED):
            compiled(flambeau.ones(1))


def test_a_namespace_beside_a_scheduler_is_one_recording() -> None:
    """What nobody calls, the namespace's `__eq__` for one, does not count."""
    args = argparse.Namespace(amp=False)
    model = nn.Linear(2, 2)
    optimizer = flambeau.optim.SGD(model.parameters(), 0.1)
    scheduler = flambeau.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)

    @flambeau.compile
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        with flambeau.autocast("cpu", enabled=args.amp):
            loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(12):
        step(flambeau.ones(2))
        scheduler.step()
    (recorded,) = step._compiled.recordings()
    assert recorded.calls == 9 and not step._compiled.parts()


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
def test_words_of_a_dict(kind: type) -> None:
    """Whatever changes an entry that is watched changes a word, on every Python; or there are no words."""
    for change in ("held['a'] = 2", "held['z'] = 1", "del held['a']", "held.clear()", "held['a'] = held.pop('a')"):
        held = kind(a=1.5, b=2.5)
        rows = dict_rows(held, ("a", "z"))
        exec(change, {"held": held})
        assert rows is None or any(word(address)[1] != old for address, old in rows)


def test_what_the_garbage_collector_calls_is_not_what_the_function_does() -> None:
    def called(phase: str, info: dict) -> None:
        time.perf_counter()

    observer = Observer()
    gc.callbacks.append(called)
    try:
        with observer.watching():
            gc.collect(0)
    finally:
        gc.callbacks.remove(called)
    assert not any("perf_counter" in why for why in observer.refused) and id(called.__code__) not in observer.ran
    with observer.watching():
        called("", {})  # somebody's own call is one
    assert any("perf_counter" in why for why in observer.refused)


def test_a_dry_run_goes_on_watching_after_a_finalizer_ran() -> None:
    """What the collector calls for the first time is no news of the function, and what the function does afterwards still is."""

    def called(phase: str, info: dict) -> None:
        pass

    def news() -> None:
        pass

    observer, reported, raised = Observer(), [], False
    gc.callbacks.append(called)
    hook, sys.unraisablehook = sys.unraisablehook, reported.append
    try:
        with observer.following(strictly=True):
            gc.collect(0)
            try:
                news()
            except NewCode:
                raised = True
        with observer.following():
            gc.collect(0)
    finally:
        sys.unraisablehook = hook
        gc.callbacks.remove(called)
    assert raised and not reported and id(called.__code__) not in observer.instructions


@pytest.mark.parametrize("work", ["clock", "operators"])
def test_finalizers_of_garbage_are_not_what_the_function_does(work: str) -> None:
    """Garbage of others is collected in the middle of the recorded call, too: a function is one graph all the same, and what a finalizer
    computes is computed once, then."""
    count, times = flambeau.zeros(()), []

    class Garbage:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            times.append(time.perf_counter() if work == "clock" else count.add_(1))

    def more(phase: str, info: dict) -> None:
        if phase == "stop":
            Garbage()

    layer = nn.Linear(3, 3)
    compiled = flambeau.compile(lambda x: [layer(x).tanh() for _ in range(50)][-1], fullgraph=True)
    before = gc.get_threshold()
    gc.callbacks.append(more)
    gc.set_threshold(20)
    try:
        for _ in range(SETTLED):
            compiled(flambeau.ones(2, 3))
    finally:
        gc.callbacks.remove(more)
        gc.set_threshold(*before)
    gc.collect()
    for _ in range(SETTLED):
        compiled(flambeau.ones(2, 3))
    assert state_programs.how(compiled) == "native" and len(times) > 10
    assert count.item() == (len(times) if work == "operators" else 0)


def test_handlers_of_signals_are_not_what_the_function_does() -> None:
    def handle(number: int, frame: Any) -> None:
        time.perf_counter()

    observer, before = Observer(), signal.signal(signal.SIGUSR1, handle)
    try:
        with observer.watching():
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not any("perf_counter" in why for why in observer.refused) and id(handle.__code__) not in observer.ran


def test_what_the_library_calls_of_pythons_is_passed_over_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of Python's library reach the observer where users call it; where this library does, one of each function is enough."""
    if event_filter._native_setter() is None:
        pytest.skip("no native filter here")
    seen: collections.Counter = collections.Counter()
    event = observer_room._Watch.event
    monkeypatch.setattr(
        observer_room._Watch, "event", lambda self, f, *more: (seen.update([f.f_code]), event(self, f, *more))[1]
    )
    observer, layer = Observer(), nn.TransformerEncoderLayer(8, 2)
    for _ in range(2):
        with observer.watching():
            nn.TransformerEncoder(layer, 6)  # copies layers by `copy.deepcopy`
    assert seen[copy.deepcopy.__code__] < 4 and id(copy.deepcopy.__code__) not in observer.ran
    with observer.watching():
        copy.deepcopy(layer)
    assert seen[copy.deepcopy.__code__] > 100 and id(copy.deepcopy.__code__) in observer.ran


def test_one_event_is_enough_for_a_file_of_the_library_and_for_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """The native filter passes over further code of a file that is known, which counts all the same, and over what an import runs."""
    if not event_filter._native_setter() or not event_filter._file_place():
        pytest.skip("no native filter here, or none that knows files")
    seen: collections.Counter = collections.Counter()
    event = observer_room._Watch.event
    monkeypatch.setattr(
        observer_room._Watch, "event", lambda self, f, *more: (seen.update([f.f_code]), event(self, f, *more))[1]
    )
    observer, space = Observer(), {"layer": nn.LSTM(2, 2), "x": flambeau.ones(1, 2)}
    exec("def run():\n    layer(x)", space)  # noqa: S102
    with observer.watching():
        space["run"]()
    names = observer.library_names
    library = [code for kind, code in observer.kinds.values() if kind == observer_room.LIBRARY]
    unseen = [code for code in library if code not in seen]
    assert len(unseen) > 20 and all(names.issuperset(code.co_names) for code in unseen)
    assert not any(code.co_filename == __file__ for code in unseen)
    monkeypatch.delitem(sys.modules, "fractions", raising=False)
    exec("def run():\n    import fractions", space)  # noqa: S102
    seen.clear()
    with observer.watching():
        space["run"]()
    assert 0 < sum(seen.values()) < 20


@pytest.mark.parametrize("name", ["warn", "warn_explicit"])
def test_warnings_of_the_library_that_are_not_shown_are_noticed(name: str) -> None:
    arguments = {"warn": "'', UserWarning", "warn_explicit": "'', UserWarning, '', 1"}[name]
    text = f"import _warnings\ndef given():\n    _warnings.{name}({arguments})"
    space: dict[str, Any] = {}
    exec(compile(text, str(Path(flambeau.__file__).parent / "made.py"), "exec"), space)  # noqa: S102
    observer = Observer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            observer.warned = False
            with observer.watching():
                space["given"]()
            assert observer.warned
