"""Parallel loops: every part of every loop runs exactly once, whoever runs it, whatever happens around it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import flambeau.backends.cpu  # noqa: F401 - chooses the compiler
from flambeau.backends.cpu import team, threads
from flambeau.kernels.loops import loop_kernel, prange

pytestmark = pytest.mark.skipif(threads.library() is None, reason="threads need libgomp, on Linux")
HERE = Path(__file__)
LARGE = 1 << 20  # a cost that makes the smallest loop worth all threads


@loop_kernel
def count_jobs(out, n, jobs, cost):
    """One job per round; every iteration adds what only a complete earlier round can have left behind."""
    for _ in range(jobs):
        for i in prange(n, cost):
            out[i] += 1


@loop_kernel
def neighbours(even, odd, n, jobs, cost):
    """Each job reads what other parts wrote in the job before: a part that ran late or twice shows in the result."""
    for _ in range(jobs):
        for i in prange(n, cost):
            odd[i] = even[i] + even[(i + 1) % n]
        for i in prange(n, cost):
            even[i] = odd[(i + n - 1) % n] - odd[i] + 1


@pytest.fixture
def thread_count():
    """Sets the number of threads, which share their work as they do on crowded cores."""
    before = threads.get_num_threads()
    team.assume_crowded(600)
    yield threads.set_num_threads
    threads.set_num_threads(before)
    team.assume_crowded(0)


def check_counts(n: int, jobs: int) -> bool:
    out = np.zeros(n, np.int64)
    count_jobs(out, n, jobs, LARGE)
    return bool((out == jobs).all())


def check_neighbours(n: int, jobs: int) -> bool:
    values = [np.arange(n, dtype=np.int64), np.zeros(n, np.int64)]
    even, odd = (v.copy() for v in values)
    neighbours(*values, n, jobs, LARGE)
    for _ in range(jobs):
        odd = even + np.roll(even, -1)
        even = np.roll(odd, 1) - odd + 1
    return bool((values[0] == even).all() and (values[1] == odd).all())


@pytest.mark.parametrize("count", [2, 3, 8, 40])
def test_every_part_runs_once(thread_count, count):
    thread_count(count)
    for n in (2, 3, 17, 1000):
        assert check_counts(n, 100_000 // count)
        assert check_neighbours(n, 2000 // count)
    assert team.started() >= count - 1


def test_a_million_jobs(thread_count):
    thread_count(2)
    assert check_counts(4, 1_000_000)


def test_several_callers_at_once(thread_count):
    thread_count(3)
    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(lambda n: check_counts(n, 20_000) and check_neighbours(n, 500), range(2, 10)))


def test_the_count_changes_while_jobs_run(thread_count):
    stop = threading.Event()

    def change() -> None:
        for i in range(10**9):
            if stop.is_set():
                return
            threads.set_num_threads(1 + i % 6)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        assert all(check_counts(20, 1000) and check_neighbours(20, 50) for _ in range(20))
    finally:
        stop.set()
        changer.join()


@loop_kernel
def nested(out, n, m, cost):
    for i in prange(n, cost):
        for j in prange(m, cost):
            out[i * m + j] += i * m + j


def test_a_loop_inside_a_part(thread_count):
    thread_count(4)
    for _ in range(200):
        out = np.zeros(60, np.int64)
        nested(out, 12, 5, LARGE)
        assert (out == np.arange(60)).all()


def test_workers_take_no_signals(thread_count):
    thread_count(2)
    assert check_counts(8, 10)
    masks = []
    for task in Path("/proc/self/task").iterdir():
        fields = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
        masks.append(int(fields["SigBlk"], 16))
    interrupt, fault = (1 << (number - 1) for number in (2, 11))
    assert any(mask & interrupt and not mask & fault for mask in masks)


def python(program: str, timeout: int = 60) -> list[str]:
    path = os.pathsep.join([str(HERE.parents[2]), str(HERE.parent)])
    done = subprocess.run(
        [sys.executable, "-c", f"from test_team import *\n{program}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_forks_while_other_threads_run_jobs():
    program = """
threads.set_num_threads(3)
team.assume_crowded(600)
assert check_counts(10, 1) and check_neighbours(7, 1)  # compiled before the first fork
stop = threading.Event()
fine = []
def run():
    while not stop.is_set():
        fine.append(check_counts(10, 200))
runners = [threading.Thread(target=run) for _ in range(2)]
for r in runners: r.start()
results = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        threads.set_num_threads(3)  # a request that a child cannot grant
        os._exit(0 if check_counts(10, 100) and check_neighbours(7, 10) and team.started() == 0 else 1)
    results.append(os.waitpid(child, 0)[1])
    assert check_counts(10, 100)
stop.set()
for r in runners: r.join()
print(results == [0] * 20, all(fine), len(fine) > 0)
"""
    assert python(program) == ["True"] * 3


def test_crowded_cores_are_noticed():
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        program = """
import time
threads.set_num_threads(2)
unknown = team.crowded()
end, right = time.monotonic() + 40, True
while not team.crowded() and time.monotonic() < end:
    right = right and check_counts(500_000, 10)
print(unknown, team.crowded(), right, check_counts(16, 2000), check_neighbours(33, 100), team.started())
"""
        assert python(program) == ["False", "True", "True", "True", "True", "1"]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_the_process_ends_while_workers_are_awake():
    program = """
threads.set_num_threads(4)
team.assume_crowded(600)
def run():
    while True:
        check_counts(50, 100000)
threading.Thread(target=run, daemon=True).start()
print(check_counts(50, 1000))
"""
    for _ in range(3):
        assert python(program) == ["True"]


def test_no_room_for_more_threads():
    program = """
import resource
team.assume_crowded(600)
check_counts(4, 10)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), limit[1]))
threads.set_num_threads(200)
print(check_counts(400, 50), check_neighbours(400, 5), team.started() < 199)
"""
    assert python(program) == ["True"] * 3
