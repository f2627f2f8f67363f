"""Marks for NVIDIA's profilers."""

import sys
import types

import pytest

from flambeau.cuda import nvtx


class Calls(types.ModuleType):
    """Stands for the package `nvtx`, and says what it was called with."""

    def __init__(self):
        super().__init__("nvtx")
        self.__spec__ = types.SimpleNamespace(name="nvtx")
        self.made = []

    def __getattr__(self, name):
        return lambda *args: self.made.append((name, *args))


@pytest.fixture
def package(monkeypatch):
    calls = Calls()
    monkeypatch.setitem(sys.modules, "nvtx", calls)
    nvtx._nvtx.cache_clear()
    yield calls
    nvtx._nvtx.cache_clear()


def test_ranges_and_marks_go_to_the_package(package):
    with nvtx.range("step {}", 3):
        assert nvtx.range_push("inner") == 1
        nvtx.mark("here")
        assert nvtx.range_pop() == 1
    nvtx.range_end(nvtx.range_start("long"))
    assert nvtx.range_pop() == -1
    assert package.made == [
        ("push_range", "step 3"), ("push_range", "inner"), ("mark", "here"), ("pop_range",), ("pop_range",), ("start_range", "long"),
        ("end_range", None),
    ]  # fmt: skip


def test_without_the_package_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    nvtx._nvtx.cache_clear()
    with pytest.raises(RuntimeError, match="pip install nvtx"):
        nvtx.range_push("x")
    nvtx._nvtx.cache_clear()
