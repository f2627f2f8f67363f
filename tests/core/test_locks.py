"""Forking while other threads are inside: the child finds no lock held, and nothing half done."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flambeau

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

_PREAMBLE = """
import faulthandler, os, threading, time
import flambeau
from flambeau.core.locks import GENERATOR, new_lock

def in_child(work):
    child = os.fork()
    if child == 0:
        faulthandler.dump_traceback_later(10, exit=True)
        work()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def beside(hold):
    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    return thread
"""


def run(program, **environment):
    done = subprocess.run(
        [sys.executable, "-c", _PREAMBLE + program],
        env={**os.environ, "PYTHONPATH": str(Path(flambeau.__file__).parents[1]), **environment},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_lock_is_made_to_survive_a_fork():
    package = Path(flambeau.__file__).parent
    for path in package.rglob("*.py"):
        if path == package / "core" / "locks.py":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            bare = re.search(r"(?<!asyncio\.)\b(Lock|RLock|Condition|Semaphore)\(\)", line)  # of threads
            assert not bare, f"{path}:{number}: make it with flambeau.core.locks.new_lock"


def test_a_lock_that_is_held_for_good_elsewhere_is_free_in_the_child():
    run("""
lock, taken = new_lock(), threading.Event()
def hold():
    with lock:
        taken.set()
        time.sleep(100)
beside(hold)
taken.wait()
def work():
    assert lock.acquire(timeout=1)
    lock.release()
in_child(work)
assert not lock.acquire(timeout=0)
os._exit(0)
""")


def test_a_fork_waits_for_a_thread_that_is_inside():
    run("""
lock, taken, inside = new_lock(GENERATOR), threading.Event(), []
def hold():
    with lock:
        inside.append(1)
        taken.set()
        time.sleep(0.3)
        inside.clear()
beside(hold)
taken.wait()
def work():
    assert not inside
    with lock:
        pass
in_child(work)
thread = beside(lambda: lock.acquire())  # and the parent has let go of it
thread.join(5)
assert not thread.is_alive()
""")


def test_the_locks_are_taken_in_an_order_that_cannot_block():
    run("""
from flambeau.core.locks import COMPILER
inner, outer = new_lock(COMPILER), new_lock(GENERATOR)
stop = False
def nest():
    while not stop:
        with outer:
            time.sleep(0.001)
            with inner:
                time.sleep(0.001)
thread = beside(nest)
started = time.monotonic()
for _ in range(20):
    in_child(lambda: None)
stop = True
thread.join()
assert time.monotonic() - started < 8, "a fork waited in vain"
""")


def test_forking_beside_threads_that_draw_and_multiply():
    run("""
import flambeau.nn.functional as F
flambeau.set_num_threads(2)
def work():
    x = flambeau.randn(400, 100)
    (x.exp() @ x.t()[:, :60]).softmax(1).sum().item()
    F.conv2d(flambeau.randn(2, 4, 16, 16), flambeau.randn(4, 4, 3, 3))
    flambeau.randn(10**5).sum()
work()
stop = False
def loop():
    while not stop: work()
threads = [beside(loop) for _ in range(3)]
for _ in range(12):
    time.sleep(.05)
    in_child(work)
stop = True
for thread in threads: thread.join()
""")


def test_forking_beside_a_thread_that_compiles(tmp_path):
    run("""
def compile_many():
    for dtype in (flambeau.float64, flambeau.float32):
        for name in ("sin", "tan", "sinh", "expm1", "log1p", "erf", "erfc", "atan", "asinh", "rsqrt", "exp2"):
            getattr(flambeau.ones(3, dtype=dtype), name)()
thread = beside(compile_many)
time.sleep(.1)
for i in range(6):
    in_child(lambda: (flambeau.ones(3, dtype=flambeau.int16 if i % 2 else flambeau.int8) * i).cumsum(0))
thread.join()
""", FLAMBEAU_CACHE_DIR=str(tmp_path))  # fmt: skip
