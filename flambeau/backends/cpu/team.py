"""The threads that run parallel loops of compiled kernels: libgomp's, or our own where other programs crowd the cores.

`flambeau_parallel(function, data, team)` runs `function(data, part, parts)` for every part, on up to `team` threads. What a part computes
does not depend on the thread that runs it, so results are the same either way.

libgomp gives each thread one share and waits for all of them. That is the fastest way on a machine of one's own, and
oneDNN's threads are the same ones; but a thread that has to wait for its core (a time slice is some milliseconds) holds
up the whole loop. When the threads of a loop end that far apart, and more threads are runnable in the system than there are
cores (the fourth word of /proc/loadavg), and this happens several times within a short time, then the cores are taken to be
crowded for some time, and loops are shared out differently: there are more parts than threads, each claims one after the
other, the caller too, and nobody waits for a thread that has not begun. From time to time libgomp is tried again.

How sharing stays correct:

- `claims` holds (end << 32 | next): the parts next, ..., end - 1 are free. Claiming is a compare-and-swap, and only after
  it does a thread read what to run. The caller cannot return before a claimed part is done, so what is read belongs to
  the claimed part, even if the thread slept through any number of loops before the swap.
- `pending` counts the parts not yet done; its top bit says that the caller sleeps. All results are written before the
  count goes down (release) and read after it was seen to be zero (acquire).
- `epoch` changes with every loop. A worker sleeps only as long as the epoch is the one it last looked for work in.
- Workers leave the caller's core: the scheduler is content with all threads of a process on one core and those of others on
  the rest, but then parts never run at the same time.
- `lock` is tried, never waited for: a second caller runs its loop alone.
- Threads of both kinds take no signals (`signals.py` says why): our own are started so, those of libgomp see to it in their first
  loop and remember it under a key of pthreads.
- Nothing here is ever freed, so threads still running while the process ends do no harm.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import platform
import sys
import time

from ...kernels.llvm_text import Function, Value
from . import signals

MOST_THREADS = 256
_FUTEX = {"x86_64": 202, "aarch64": 98}  # the number of the system call
_PAUSE = {"x86_64": ("@llvm.x86.sse2.pause",), "aarch64": ("@llvm.aarch64.hint", "i32 1")}

# Times in nanoseconds. A loop whose first thread is ready in less than half the time, by this much, was held up.
_HELD_UP = 300_000
_TIMES, _WITHIN = 4, 30_000_000  # how often that must happen, with gaps of at most this, for the cores to be crowded
_FIRST_PERIOD, _LONGEST_PERIOD = 400_000_000, 6_400_000_000  # how long cores stay crowded: twice as long each time
_CALM = 10  # after so many calm periods the first one counts again

_PARTS_PER_THREAD = 8
_AWAKE = 8000  # turns of a waiting loop, 10 to 60 ns each, before sleeping

_LOCK, _STARTED, _UNTIL, _PERIOD, _LAST, _STREAK, KEY = 0, 4, 8, 16, 24, 32, 36
_JOB, _EPOCH, _CORE, _SLEEPERS, _PENDING, _CLAIMS, _SIZE = 64, 128, 132, 192, 256, 320, 384  # cache lines of their own
_CALLER_SLEEPS = -1 << 31  # in what is pending

_state: int | None = None


def supported() -> bool:
    return sys.platform == "linux" and platform.machine() in _FUTEX


def state_address() -> int:
    """Return the address of the threads' state: memory that exists until the process ends."""
    global _state
    if _state is None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        got = libc.mmap(None, _SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if got is None or got == ctypes.c_void_p(-1).value:
            raise MemoryError("cannot map memory for the threads' state")
        key = ctypes.c_uint()
        if libc.pthread_key_create(ctypes.byref(key), None):
            raise MemoryError("no key of pthreads is left for the threads' state")
        ctypes.c_uint.from_address(got + KEY).value = key.value
        _state = got
    return _state


def started() -> int:
    """Return the number of our own threads that were started."""
    return 0 if _state is None else ctypes.c_int32.from_address(_state + _STARTED).value


def crowded() -> bool:
    """Return whether other programs are known to use the cores."""
    return _state is not None and time.monotonic_ns() < ctypes.c_int64.from_address(_state + _UNTIL).value


def assume_crowded(seconds: float) -> None:
    """Treat the cores as busy for this many seconds, whatever was measured."""
    until = time.monotonic_ns() + int(seconds * 1e9) if seconds > 0 else 0
    ctypes.c_int64.from_address(state_address() + _UNTIL).value = until


def forget() -> None:
    """Drop the thread team in a forked child, where its parent's threads do not exist."""
    if _state is not None:
        key = ctypes.c_uint.from_address(_state + KEY).value
        ctypes.memset(_state, 0, _SIZE)
        ctypes.c_uint.from_address(_state + KEY).value = key


# -- native code -----------------------------------------------------------------------------------------------------------


def _at(f: Function, place: int) -> str:
    """Return the address of a field of the threads' state."""
    return f.place(f.outside("flambeau_team"), place, "i8")


@functools.cache
def parallel() -> Function:
    """Return the function `flambeau_parallel`."""
    f = Function("define void @flambeau_parallel(ptr %function, ptr %data, i64 %team) nounwind")
    began, until_at = f.call("i64", _now()), _at(f, _UNTIL)
    until = f.read("i64", until_at, "monotonic")
    with f.when(f.compare("slt", "i64", began, until)):
        f.call("void", _share(), "ptr %function", "ptr %data", "i64 %team")
        f.ret()
    record = f.slot("[3 x i64]")  # function, data, when the first thread was ready
    f.write("ptr", "%function", record)
    f.write("ptr", "%data", f.place(record, 1))
    f.write("i64", (1 << 63) - 1, f.place(record, 2))
    team = f.convert("trunc", "i64", "%team", "i32")
    f.call("void", "@GOMP_parallel", f"ptr {f.bring(_member())}", f"ptr {record}", f"i32 {team}", "i32 0")
    ended, first = f.call("i64", _now()), f.item(record, 2)
    worked, waited = f.sub(first, began), f.sub(ended, first)
    with f.when(f.compare("sle", "i64", waited, f.add(worked, _HELD_UP))):
        f.ret()
    last_at, streak_at, period_at = (_at(f, place) for place in (_LAST, _STREAK, _PERIOD))
    crowded = f.compare("sgt", "i32", f.call("i32", _runnable()), os.cpu_count() or 1)
    soon = f.compare("slt", "i64", f.sub(ended, f.read("i64", last_at, "monotonic")), _WITHIN)
    f.write("i64", ended, last_at, "monotonic")
    known = f.select(soon, "i32", f.read("i32", streak_at, "monotonic"), 0)
    streak = f.select(crowded, "i32", f.op("add", "i32", known, 1), 0)
    f.write("i32", streak, streak_at, "monotonic")
    with f.when(f.compare("sge", "i32", streak, _TIMES)):
        before = f.read("i64", period_at, "monotonic")
        longer = f.intrinsic("smin", "i64", f.mul(before, 2), _LONGEST_PERIOD)
        calm = f.compare("sge", "i64", f.sub(ended, until), f.mul(before, _CALM))
        period = f.select(calm, "i64", _FIRST_PERIOD, longer)
        f.write("i64", period, period_at, "monotonic")
        f.write("i64", f.add(ended, period), until_at, "monotonic")
    return f


@functools.cache
def _member() -> Function:
    """Return the function that a thread of libgomp's team runs. The first to be ready stores its time."""
    f = Function("define internal void @member(ptr %record) nounwind")
    size, rank = f.call("i32", "@omp_get_num_threads"), f.call("i32", "@omp_get_thread_num")
    with f.when(f.compare("ne", "i32", rank, 0)):
        key = f.read("i32", _at(f, KEY))
        sheltered = f.call("ptr", "@pthread_getspecific", f"i32 {key}")
        with f.when(f.compare("eq", "ptr", sheltered, "null")):
            f.call("void", _shelter(), f"i32 {key}")
    share = [f"i64 {f.convert('sext', 'i32', number, 'i64')}" for number in (rank, size)]
    f.call("void", f.item("%record", 0, "ptr"), f"ptr {f.item('%record', 1, 'ptr')}", *share)
    f.change("min", "i64", f.place("%record", 2), f.call("i64", _now()), "monotonic")
    return f


@functools.cache
def _shelter() -> Function:
    """Return the function that blocks signals in the calling thread for good."""
    f = _inner("void @shelter(i32 %key)")
    signals.hide(f)
    f.call("i32", "@pthread_setspecific", "i32 %key", f"ptr {_at(f, 0)}")
    return f


@functools.cache
def _runnable() -> Function:
    """Return the function that reads how many threads of the whole system run or wait for a core: the number before the slash in "0.20 0.18
    0.12 3/602 11206". 0 if that is not known."""
    f = _inner("i32 @runnable()")
    path, line, number = f.letters("loadavg", "/proc/loadavg"), f.slot("[64 x i8]"), f.variable("i32", 0)
    file = f.call("i32 (ptr, i32, ...)", "@open", f"ptr {path}", f"i32 {os.O_RDONLY | os.O_CLOEXEC}")
    with f.when(f.compare("slt", "i32", file, 0)):
        f.ret("i32", 0)
    length = f.call("i64", "@read", f"i32 {file}", f"ptr {line}", "i64 64")
    f.call("i32", "@close", f"i32 {file}")
    with f.loop(length) as i:
        letter = f.convert("zext", "i8", f.read("i8", f.place(line, i, "i8")), "i32")
        so_far, digit = f.read("i32", number), f.op("sub", "i32", letter, ord("0"))
        with f.when(f.compare("eq", "i32", letter, ord("/"))):
            f.ret("i32", so_far)
        longer = f.op("add", "i32", f.op("mul", "i32", so_far, 10), digit)
        f.write("i32", f.select(f.compare("ult", "i32", digit, 10), "i32", longer, 0), number)
    f.ret("i32", 0)
    return f


@functools.cache
def _now() -> Function:
    """Return the function that reads the time in nanoseconds."""
    f = _inner("i64 @now()")
    place = f.slot("[2 x i64]")
    f.call("i32", "@clock_gettime", f"i32 {time.CLOCK_MONOTONIC}", f"ptr {place}")
    f.ret("i64", f.add(f.mul(f.item(place, 0), 1_000_000_000), f.item(place, 1)))
    return f


@functools.cache
def _share() -> Function:
    """Return the function that runs a loop on our own threads, or alone if they are busy."""
    f = _inner("void @share(ptr %function, ptr %data, i64 %wanted)")
    lock, epoch = _at(f, _LOCK), _at(f, _EPOCH)
    mine = f.swap("i32", lock, 0, 1, "acquire")
    with f.when(f.op("xor", "i1", mine, "true")):
        f.call("void", "%function", "ptr %data", "i64 0", "i64 1")
        f.ret()
    team = f.intrinsic("smin", "i64", "%wanted", MOST_THREADS)
    ready = f.add(f.convert("sext", "i32", f.read("i32", _at(f, _STARTED)), "i64"), 1)
    with f.when(f.compare("slt", "i64", ready, team)):
        f.call("void", _hire(), f"i64 {ready}", f"i64 {team}")
    parts, job = f.mul(team, _PARTS_PER_THREAD), _at(f, _JOB)
    for i, (kind, value) in enumerate((("ptr", "%function"), ("ptr", "%data"), ("i64", parts))):
        f.write(kind, value, f.place(job, i))
    f.write("i32", f.convert("trunc", "i64", parts, "i32"), _at(f, _PENDING), "monotonic")
    f.write("i32", f.call("i32", "@sched_getcpu"), _at(f, _CORE), "monotonic")
    f.write("i64", f.op("shl", "i64", parts, 32), _at(f, _CLAIMS), "release")
    f.change("add", "i32", epoch, 1, "seq_cst")
    with f.when(f.compare("ne", "i32", f.read("i32", _at(f, _SLEEPERS), "seq_cst"), 0)):
        _wake(f, epoch, f.sub(team, 1))
    f.call("void", _work(), "i1 true")
    f.call("void", _finish())
    f.write("i32", 0, lock, "release")
    return f


@functools.cache
def _work() -> Function:
    """Return the function that runs free parts until there are none: the caller from the first on, workers from the last back, so that with
    two threads each mostly finds its data in its own core's cache from the loop before."""
    f = _inner("void @work(i1 %caller)")
    claims, pending, job = _at(f, _CLAIMS), _at(f, _PENDING), _at(f, _JOB)
    done = f.variable("i32", 0)
    with f.forever() as none_left:
        seen = f.read("i64", claims, "monotonic")
        first, end = f.op("and", "i64", seen, (1 << 32) - 1), f.op("lshr", "i64", seen, 32)
        with f.when(f.compare("uge", "i64", first, end)):
            f.go(none_left)
        part = f.select("%caller", "i64", first, f.sub(end, 1))
        left = f.add(seen, f.select("%caller", "i64", 1, -1 << 32))
        with f.when(f.swap("i64", claims, seen, left, "acq_rel")):
            data, parts = f.item(job, 1, "ptr"), f.item(job, 2)
            f.call("void", f.item(job, 0, "ptr"), f"ptr {data}", f"i64 {part}", f"i64 {parts}")
            f.write("i32", f.op("add", "i32", f.read("i32", done), 1), done)
    count = f.read("i32", done)
    with f.when(f.compare("ne", "i32", count, 0)):
        before = f.change("sub", "i32", pending, count, "acq_rel")
        with f.when(f.compare("eq", "i32", f.op("sub", "i32", before, count), _CALLER_SLEEPS)):
            _wake(f, pending, 1)
    return f


@functools.cache
def _finish() -> Function:
    """Return the function that waits for the parts that workers have claimed and not finished."""
    f = _inner("void @finish()")
    pending = _at(f, _PENDING)
    with f.loop(_AWAKE):
        with f.when(f.compare("eq", "i32", f.read("i32", pending, "acquire"), 0)):
            f.ret()
        _pause(f)
    f.change("or", "i32", pending, _CALLER_SLEEPS, "acq_rel")
    with f.forever():
        left = f.read("i32", pending, "acquire")
        with f.when(f.compare("eq", "i32", left, _CALLER_SLEEPS)):
            f.ret()
        _sleep(f, pending, left)
    return f


@functools.cache
def _worker() -> Function:
    f = Function("define internal ptr @worker(ptr %unused) nounwind")
    epoch, sleepers = _at(f, _EPOCH), _at(f, _SLEEPERS)
    with f.forever():
        seen, core = f.read("i32", epoch, "acquire"), f.read("i32", _at(f, _CORE), "monotonic")
        with f.when(f.compare("eq", "i32", core, f.call("i32", "@sched_getcpu"))):
            f.call("void", _leave(), f"i32 {core}")
        f.call("void", _work(), "i1 false")
        more = f.fresh("more")
        with f.loop(_AWAKE):
            with f.when(f.compare("ne", "i32", f.read("i32", epoch, "monotonic"), seen)):
                f.go(more)
            _pause(f)
        f.change("add", "i32", sleepers, 1, "seq_cst")
        _sleep(f, epoch, seen)
        f.change("sub", "i32", sleepers, 1, "seq_cst")
        f.label(more)
    f.ret("ptr", "null")
    return f


@functools.cache
def _leave() -> Function:
    """Return the function that moves the calling thread to another core, of those that the process may use now."""
    f = _inner("void @leave(i32 %core)")
    cores = f.slot("[128 x i8]")
    process = f.call("i32", "@getpid")
    failed = f.call("i32", "@sched_getaffinity", f"i32 {process}", "i64 128", f"ptr {cores}")
    known, small = f.compare("eq", "i32", failed, 0), f.compare("ult", "i32", "%core", 8 * 128)
    with f.when(f.op("and", "i1", known, small)):
        word = f.place(cores, f.convert("zext", "i32", f.op("lshr", "i32", "%core", 5), "i64"), "i32")
        this = f.op("shl", "i32", 1, f.op("and", "i32", "%core", 31))
        f.write("i32", f.op("and", "i32", f.read("i32", word), f.op("xor", "i32", this, -1)), word)
        # refused, and without effect, if there is no other core
        f.call("i32", "@sched_setaffinity", "i32 0", "i64 128", f"ptr {cores}")
    return f


@functools.cache
def _hire() -> Function:
    """Return the function that starts the workers first, ..., team - 1. They block all signals but those that their own faults raise."""
    f = _inner("void @hire(i64 %first, i64 %team)")
    thread, started, enough = f.slot("i64"), _at(f, _STARTED), f.fresh("enough")
    before = signals.hide(f)
    with f.loop("%team", "%first") as index:
        worker = f.bring(_worker())
        failed = f.call("i32", "@pthread_create", f"ptr {thread}", "ptr null", f"ptr {worker}", "ptr null")
        with f.when(f.compare("ne", "i32", failed, 0)):
            f.go(enough)
        f.call("i32", "@pthread_detach", f"i64 {f.read('i64', thread)}")
        f.write("i32", f.convert("trunc", "i64", index, "i32"), started)
    f.label(enough)
    signals.show(f, before)
    return f


def _inner(signature: str) -> Function:
    return Function(f"define internal {signature} noinline nounwind")


# Futex operations: 128 = private to this process, + 0 wait, 1 wake.
_SYSCALL = "i64 (i64, ...)", "@syscall"


def _sleep(f: Function, place: str, value: str) -> None:
    """Emit code that sleeps while the number at `place` is `value`."""
    f.call(*_SYSCALL, f"i64 {_FUTEX[platform.machine()]}", f"ptr {place}", "i32 128", f"i32 {value}", "ptr null")


def _wake(f: Function, place: str, count: Value) -> None:
    f.call(*_SYSCALL, f"i64 {_FUTEX[platform.machine()]}", f"ptr {place}", "i32 129", f"i64 {count}")


def _pause(f: Function) -> None:
    f.call("void", *_PAUSE[platform.machine()])
