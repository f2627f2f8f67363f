"""The number of threads: defaults, changes, missing libgomp, forked children."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.backends.cpu import threads

ROOT = str(Path(__file__).parents[2])


def python(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": ROOT, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_default_is_what_the_process_may_use():
    program = "from flambeau.backends.cpu import threads; print(threads.get_num_threads())"
    assert 1 <= int(python(program)[0]) <= (os.cpu_count() or 1)
    assert python(program, OMP_NUM_THREADS="3") == ["3"]
    assert python(program, OMP_NUM_THREADS="2,1") == ["2"]


def test_set_and_get():
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(3)
        assert threads.get_num_threads() == 3
    finally:
        threads.set_num_threads(before)


@pytest.mark.parametrize(
    "bad,error", [(0, RuntimeError), (-1, RuntimeError), (2.0, RuntimeError), (True, RuntimeError)]
)
def test_bad_counts(bad, error):
    with pytest.raises(error, match="set_num_threads expects"):
        threads.set_num_threads(bad)


@pytest.mark.parametrize(
    "text,cores", [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None), ("", None)]
)
def test_container_quota(monkeypatch, text, cores):
    monkeypatch.setattr(threads, "_read", lambda path: text if path.endswith("cpu.max") else "")
    assert threads._cgroup_quota() == cores


def test_older_container_quota(monkeypatch):
    files = {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000", "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}
    monkeypatch.setattr(threads, "_read", lambda path: files.get(path, ""))
    assert threads._cgroup_quota() == 1.5
    files["/sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "-1"
    assert threads._cgroup_quota() is None


BIG = """
import numpy as np
import flambeau.expr as x
from flambeau.backends.cpu import threads
from flambeau.core import dtype as dt
from flambeau.backends.compiled import map_kernel

kernel = map_kernel((x.arg(0) + 1,), (dt.float32,), (dt.float32,), "cc", 1)
a = np.zeros(1_000_000, np.float32)

def work():
    out = np.zeros_like(a)
    kernel(a.size, out.ctypes.data, a.ctypes.data)
    return (out == 1).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_does_not_hang():
    program = (
        BIG
        + """
import os
threads.set_num_threads(4)
assert work()                       # starts the pool, whose threads a child does not have
child = os.fork()
if child == 0:
    alone = threads.get_num_threads() == 1
    threads.set_num_threads(4)      # a request the child cannot grant
    os._exit(0 if alone and work() else 1)
print(os.waitpid(child, 0)[1], work())
"""
    )
    assert python(program) == ["0", "True"]


def test_without_libgomp_kernels_run_on_one_thread():
    program = (
        "from flambeau.backends.cpu import threads\nthreads._open = lambda: None\nthreads.set_num_threads(4)\n"
        + BIG
        + "print(work(), threads._native.value)"
    )
    assert python(program) == ["True", "1"]


def test_several_python_threads_at_once():
    program = (
        BIG
        + """
from concurrent.futures import ThreadPoolExecutor
threads.set_num_threads(2)
with ThreadPoolExecutor(4) as pool:
    print(all(pool.map(lambda _: work(), range(40))))
"""
    )
    assert python(program) == ["True"]
