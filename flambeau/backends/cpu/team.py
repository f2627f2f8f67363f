"""The threads that run parallel loops of compiled kernels: libgomp's, or our own where other programs crowd the cores.

`flambeau_parallel(function, data, team)` runs `function(data, part, parts)` for every part, on up to `team` threads. What a
part computes never depends on who runs it, so results are the same either way.

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
import mmap
import os
import platform
import sys
import time

from . import signals

MOST_THREADS = 256
_FUTEX = {"x86_64": 202, "aarch64": 98}  # the number of the system call
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}

# Times in nanoseconds. A loop whose first thread is ready in less than half the time, by this much, was held up.
_HELD_UP = 300_000
_TIMES, _WITHIN = 4, 30_000_000  # how often that must happen, with gaps of at most this, for the cores to be crowded
_FIRST_PERIOD, _LONGEST_PERIOD = 400_000_000, 6_400_000_000  # how long cores stay crowded: twice as long each time
_CALM = 10  # after so many calm periods the first one counts again

_PARTS_PER_THREAD = 8
_AWAKE = 8000  # turns of a waiting loop, 10 to 60 ns each, before sleeping

_LOCK, _STARTED, _UNTIL, _PERIOD, _LAST, _STREAK, KEY = 0, 4, 8, 16, 24, 32, 36
_JOB, _EPOCH, _CORE, _SLEEPERS, _PENDING, _CLAIMS, _SIZE = 64, 128, 132, 192, 256, 320, 384  # cache lines of their own

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
    """Threads of our own that were started."""
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


def text() -> str:
    """The LLVM module of `flambeau_parallel`."""
    machine = platform.machine()
    pause = _PAUSE[machine]
    numbers: dict[str, int | str] = {
        "futex": _FUTEX[machine],
        "pause": pause,
        "pause_type": pause.replace(" 1", ""),
        "held_up": _HELD_UP,
    }
    numbers |= {"times": _TIMES, "within": _WITHIN, "first_period": _FIRST_PERIOD, "longest_period": _LONGEST_PERIOD}
    numbers |= {"calm": _CALM, "parts_per_thread": _PARTS_PER_THREAD, "awake": _AWAKE, "most": MOST_THREADS}
    numbers |= {"cores": os.cpu_count() or 1, "signals": signals.text()}
    places = {"started": _STARTED, "until": _UNTIL, "period": _PERIOD, "last": _LAST, "streak": _STREAK, "key": KEY}
    places |= {"job": _JOB, "epoch": _EPOCH, "core": _CORE}
    places |= {"sleepers": _SLEEPERS, "pending": _PENDING, "claims": _CLAIMS}
    at = {name: f"getelementptr (i8, ptr @flambeau_team, i64 {place})" for name, place in places.items()}
    return _MODULE.format(**numbers, **at)


# Futex operations: 128 = private to this process, + 0 wait, 1 wake.
_MODULE = """
@flambeau_team = external global i8
@loadavg = internal constant [14 x i8] c"/proc/loadavg\\00"
declare i64 @syscall(i64, ...) #1
declare i32 @clock_gettime(i32, ptr) #1
declare i32 @pthread_create(ptr, ptr, ptr, ptr) #1
declare i32 @pthread_detach(i64) #1
declare ptr @pthread_getspecific(i32) #1
declare i32 @pthread_setspecific(i32, ptr) #1
declare i32 @open(ptr, i32, ...) #1
declare i64 @read(i32, ptr, i64) #1
declare i32 @close(i32) #1
declare i32 @getpid() #1
declare i32 @sched_getcpu() #1
declare i32 @sched_getaffinity(i32, i64, ptr) #1
declare i32 @sched_setaffinity(i32, i64, ptr) #1
declare void @GOMP_parallel(ptr, ptr, i32, i32) #1
declare i32 @omp_get_num_threads() #1
declare i32 @omp_get_thread_num() #1
{signals}
define void @flambeau_parallel(ptr %function, ptr %data, i64 %team) #0 {{
  %record = alloca {{ ptr, ptr, i64 }}
  %began = call i64 @now()
  %until = load atomic i64, ptr {until} monotonic, align 8
  %crowded = icmp slt i64 %began, %until
  br i1 %crowded, label %crowd, label %quiet
crowd:
  call void @share(ptr %function, ptr %data, i64 %team)
  ret void
quiet:
  store ptr %function, ptr %record
  %data.at = getelementptr i8, ptr %record, i64 8
  store ptr %data, ptr %data.at
  %first.at = getelementptr i8, ptr %record, i64 16
  store i64 9223372036854775807, ptr %first.at
  %team32 = trunc i64 %team to i32
  call void @GOMP_parallel(ptr @member, ptr %record, i32 %team32, i32 0)
  %ended = call i64 @now()
  %first = load i64, ptr %first.at
  %worked = sub i64 %first, %began
  %waited = sub i64 %ended, %first
  %most = add i64 %worked, {held_up}
  %late = icmp sgt i64 %waited, %most
  br i1 %late, label %ask, label %return
ask:
  %runnable = call i32 @runnable()
  %too.many = icmp sgt i32 %runnable, {cores}
  %last = load atomic i64, ptr {last} monotonic, align 8
  store atomic i64 %ended, ptr {last} monotonic, align 8
  %gap = sub i64 %ended, %last
  %soon = icmp slt i64 %gap, {within}
  %streak.before = load atomic i32, ptr {streak} monotonic, align 4
  %streak.known = select i1 %soon, i32 %streak.before, i32 0
  %streak.more = add i32 %streak.known, 1
  %streak = select i1 %too.many, i32 %streak.more, i32 0
  store atomic i32 %streak, ptr {streak} monotonic, align 4
  %certain = icmp sge i32 %streak, {times}
  br i1 %certain, label %note, label %return
note:
  %period.before = load atomic i64, ptr {period} monotonic, align 8
  %doubled = shl i64 %period.before, 1
  %longer = call i64 @llvm.smin.i64(i64 %doubled, i64 {longest_period})
  %calm.for = sub i64 %ended, %until
  %calm.enough = mul i64 %period.before, {calm}
  %calm = icmp sge i64 %calm.for, %calm.enough
  %period.now = select i1 %calm, i64 {first_period}, i64 %longer
  store atomic i64 %period.now, ptr {period} monotonic, align 8
  %until.now = add i64 %ended, %period.now
  store atomic i64 %until.now, ptr {until} monotonic, align 8
  br label %return
return:
  ret void
}}

; A thread of libgomp's team. The first to be ready leaves its time.
define internal void @member(ptr %record) #0 {{
  %function = load ptr, ptr %record
  %data.at = getelementptr i8, ptr %record, i64 8
  %data = load ptr, ptr %data.at
  %size32 = call i32 @omp_get_num_threads()
  %rank32 = call i32 @omp_get_thread_num()
  %size = sext i32 %size32 to i64
  %rank = sext i32 %rank32 to i64
  %caller = icmp eq i32 %rank32, 0
  br i1 %caller, label %run, label %pool
pool:
  %key = load i32, ptr {key}
  %sheltered = call ptr @pthread_getspecific(i32 %key)
  %new = icmp eq ptr %sheltered, null
  br i1 %new, label %shelter, label %run
shelter:
  call void @shelter(i32 %key)
  br label %run
run:
  call void %function(ptr %data, i64 %rank, i64 %size)
  %ready = call i64 @now()
  %first.at = getelementptr i8, ptr %record, i64 16
  %before = atomicrmw min ptr %first.at, i64 %ready monotonic
  ret void
}}

; The calling thread takes no signals from now on.
define internal void @shelter(i32 %key) #2 {{
  %before = alloca [128 x i8], align 16
  call void @hide_signals(ptr %before)
  %kept = call i32 @pthread_setspecific(i32 %key, ptr @flambeau_team)
  ret void
}}

; How many threads of the whole system run or wait for a core: the number before the stroke in "0.20 0.18 0.12 3/602 11206".
; 0 if that cannot be known.
define internal i32 @runnable() #2 {{
  %line = alloca [64 x i8]
  %file = call i32 (ptr, i32, ...) @open(ptr @loadavg, i32 524288)
  %opened = icmp sge i32 %file, 0
  br i1 %opened, label %get, label %unknown
get:
  %length = call i64 @read(i32 %file, ptr %line, i64 64)
  %closed = call i32 @close(i32 %file)
  br label %scan
scan:
  %i = phi i64 [ 0, %get ], [ %i.next, %next ]
  %number = phi i32 [ 0, %get ], [ %number.next, %next ]
  %inside = icmp slt i64 %i, %length
  br i1 %inside, label %look, label %unknown
look:
  %at = getelementptr i8, ptr %line, i64 %i
  %character = load i8, ptr %at
  %stroke = icmp eq i8 %character, 47
  br i1 %stroke, label %found, label %next
next:
  %wide = zext i8 %character to i32
  %digit = sub i32 %wide, 48
  %is.digit = icmp ult i32 %digit, 10
  %tens = mul i32 %number, 10
  %more = add i32 %tens, %digit
  %number.next = select i1 %is.digit, i32 %more, i32 0
  %i.next = add i64 %i, 1
  br label %scan
found:
  ret i32 %number
unknown:
  ret i32 0
}}

define internal i64 @now() #2 {{
  %time = alloca {{ i64, i64 }}
  %failed = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %whole, %rest
  ret i64 %nanoseconds
}}

define internal void @share(ptr %function, ptr %data, i64 %wanted) #2 {{
  %taken = cmpxchg ptr @flambeau_team, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %mine, label %prepare, label %alone
prepare:
  %team = call i64 @llvm.smin.i64(i64 %wanted, i64 {most})
  %started = load i32, ptr {started}
  %workers = sext i32 %started to i64
  %ready = add i64 %workers, 1
  %few = icmp slt i64 %ready, %team
  br i1 %few, label %hire, label %publish
hire:
  call void @hire(i64 %ready, i64 %team)
  br label %publish
publish:
  %parts = mul i64 %team, {parts_per_thread}
  store ptr %function, ptr {job}
  store ptr %data, ptr getelementptr (i8, ptr {job}, i64 8)
  store i64 %parts, ptr getelementptr (i8, ptr {job}, i64 16)
  %parts32 = trunc i64 %parts to i32
  store atomic i32 %parts32, ptr {pending} monotonic, align 4
  %core = call i32 @sched_getcpu()
  store atomic i32 %core, ptr {core} monotonic, align 4
  %free = shl i64 %parts, 32
  store atomic i64 %free, ptr {claims} release, align 8
  %before = atomicrmw add ptr {epoch}, i32 1 seq_cst
  %sleepers = load atomic i32, ptr {sleepers} seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %take
wake:
  %others = sub i64 %team, 1
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr {epoch}, i32 129, i64 %others)
  br label %take
take:
  call void @work(i1 true)
  call void @finish()
  store atomic i32 0, ptr @flambeau_team release, align 4
  ret void
alone:
  call void %function(ptr %data, i64 0, i64 1)
  ret void
}}

; Runs free parts until there are none: the caller from the first on, workers from the last back. Of two threads each then
; mostly meets what its own core has in its cache from the loop before.
define internal void @work(i1 %caller) #2 {{
  %first = load atomic i64, ptr {claims} monotonic, align 8
  br label %look
look:
  %seen = phi i64 [ %first, %0 ], [ %found, %claim ], [ %again, %run ]
  %done = phi i32 [ 0, %0 ], [ %done, %claim ], [ %done.more, %run ]
  %next = and i64 %seen, 4294967295
  %end = lshr i64 %seen, 32
  %last = sub i64 %end, 1
  %some = icmp ult i64 %next, %end
  br i1 %some, label %claim, label %report
claim:
  %part = select i1 %caller, i64 %next, i64 %last
  %step = select i1 %caller, i64 1, i64 -4294967296
  %after = add i64 %seen, %step
  %pair = cmpxchg ptr {claims}, i64 %seen, i64 %after acq_rel monotonic
  %found = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %run, label %look
run:
  %function = load ptr, ptr {job}
  %data = load ptr, ptr getelementptr (i8, ptr {job}, i64 8)
  %parts = load i64, ptr getelementptr (i8, ptr {job}, i64 16)
  call void %function(ptr %data, i64 %part, i64 %parts)
  %done.more = add i32 %done, 1
  %again = load atomic i64, ptr {claims} monotonic, align 8
  br label %look
report:
  %any = icmp ne i32 %done, 0
  br i1 %any, label %count, label %return
count:
  %pending.before = atomicrmw sub ptr {pending}, i32 %done acq_rel
  %pending.left = sub i32 %pending.before, %done
  %sleeps = icmp eq i32 %pending.left, -2147483648
  br i1 %sleeps, label %wake, label %return
wake:
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr {pending}, i32 129, i64 1)
  br label %return
return:
  ret void
}}

; Waits for the parts that workers have claimed and not finished.
define internal void @finish() #2 {{
  br label %spin
spin:
  %n = phi i32 [ 0, %0 ], [ %n.next, %pause ]
  %now = load atomic i32, ptr {pending} acquire, align 4
  %zero = icmp eq i32 %now, 0
  br i1 %zero, label %return, label %more
more:
  %n.next = add i32 %n, 1
  %long = icmp ugt i32 %n, {awake}
  br i1 %long, label %mark, label %pause
pause:
  call void {pause}
  br label %spin
mark:
  %before = atomicrmw or ptr {pending}, i32 -2147483648 acq_rel
  br label %check
check:
  %left = load atomic i32, ptr {pending} acquire, align 4
  %none = icmp eq i32 %left, -2147483648
  br i1 %none, label %return, label %sleep
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr {pending}, i32 128, i32 %left, ptr null)
  br label %check
return:
  ret void
}}

define internal ptr @worker(ptr %unused) #0 {{
  br label %look
look:
  %seen = load atomic i32, ptr {epoch} acquire, align 4
  %core = load atomic i32, ptr {core} monotonic, align 4
  %here = call i32 @sched_getcpu()
  %same = icmp eq i32 %core, %here
  br i1 %same, label %leave, label %work
leave:
  call void @leave(i32 %core)
  br label %work
work:
  call void @work(i1 false)
  br label %spin
spin:
  %n = phi i32 [ 0, %work ], [ %n.next, %pause ]
  %now = load atomic i32, ptr {epoch} monotonic, align 4
  %new = icmp ne i32 %now, %seen
  br i1 %new, label %look, label %idle
idle:
  %n.next = add i32 %n, 1
  %tired = icmp ugt i32 %n, {awake}
  br i1 %tired, label %sleep, label %pause
pause:
  call void {pause}
  br label %spin
sleep:
  %up = atomicrmw add ptr {sleepers}, i32 1 seq_cst
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr {epoch}, i32 128, i32 %seen, ptr null)
  %down = atomicrmw sub ptr {sleepers}, i32 1 seq_cst
  br label %look
}}

; Moves the calling thread to another core than this one, of those that the process may use now.
define internal void @leave(i32 %core) #2 {{
  %cores = alloca [128 x i8], align 8
  %process = call i32 @getpid()
  %failed = call i32 @sched_getaffinity(i32 %process, i64 128, ptr %cores)
  %place = lshr i32 %core, 5
  %known = icmp eq i32 %failed, 0
  %small = icmp ult i32 %place, 32
  %possible = and i1 %known, %small
  br i1 %possible, label %move, label %return
move:
  %word = getelementptr i32, ptr %cores, i32 %place
  %allowed = load i32, ptr %word
  %bit = and i32 %core, 31
  %this = shl i32 1, %bit
  %others = xor i32 %this, -1
  %left = and i32 %allowed, %others
  store i32 %left, ptr %word
  ; refused, and without effect, if there is no other core
  %refused = call i32 @sched_setaffinity(i32 0, i64 128, ptr %cores)
  br label %return
return:
  ret void
}}

; Starts the workers first, ..., team - 1. They take no signals but those that their own faults raise.
define internal void @hire(i64 %first, i64 %team) #2 {{
  %before = alloca [128 x i8], align 16
  %thread = alloca i64
  call void @hide_signals(ptr %before)
  br label %start
start:
  %index = phi i64 [ %first, %0 ], [ %next, %started ]
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr null)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %started, label %return
started:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  %count = trunc i64 %index to i32
  store i32 %count, ptr {started}
  %next = add i64 %index, 1
  %enough = icmp eq i64 %next, %team
  br i1 %enough, label %return, label %start
return:
  call void @show_signals(ptr %before)
  ret void
}}

declare void {pause_type}
declare i64 @llvm.smin.i64(i64, i64)
attributes #0 = {{ nounwind }}
attributes #1 = {{ nounwind nonlazybind }}
attributes #2 = {{ noinline nounwind }}
!llvm.module.flags = !{{!0}}
!0 = !{{i32 7, !"RtLibUseGOT", i32 1}}
"""

__all__ = [
    "KEY", "MOST_THREADS", "assume_crowded", "crowded", "forget", "started", "state_address", "supported", "text",
]  # fmt: skip
