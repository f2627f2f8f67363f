"""The threads that run parallel loops of compiled kernels.

`flambeau_parallel(function, data, team, parts)` calls `function(data, part, parts)` for every part, on up to `team`
threads. Nobody waits for a thread that has not begun: parts are claimed one by one, by the caller as well, and at the
end the caller waits only for parts in progress. A worker that the operating system does not schedule, because other
programs use its core, then costs nothing; with a share fixed in advance (OpenMP's way) every loop would wait for it.
Which thread runs a part changes, what the part computes does not: results are the same in every run.

How it stays correct:

- A slot holds (end << 32 | next): the parts next, ..., end - 1 are free. Claiming is a compare-and-swap of the slot, and
  only after it do workers read which function to run. The caller cannot return before a claimed part is done, so what
  they read belongs to the slot's job, even if they slept through any number of jobs before the swap.
- `pending` counts the parts not yet done; its top bit says that the caller sleeps. All results are written before the
  count goes down (release) and read after it was seen to be zero (acquire).
- `epoch` changes with every job. A worker sleeps only as long as the epoch is the one it last looked for work in.
- `lock` is tried, never waited for: a second caller, or a loop inside a part, runs its parts itself.
- Nothing here is ever freed, so threads still running while the process ends do no harm.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys

MOST_THREADS = 256
_FUTEX = {"x86_64": 202, "aarch64": 98}  # the number of the system call
_PAUSE = {"x86_64": "@llvm.x86.sse2.pause()", "aarch64": "@llvm.aarch64.hint(i32 1)"}
_LOCK, _STARTED, _JOB, _EPOCH, _TEAM, _CORE, _SLEEPERS, _PENDING, _SLOTS = 0, 4, 64, 128, 132, 136, 192, 256, 320
_SIZE = _SLOTS + 64 * MOST_THREADS  # every slot has a cache line of its own

# Turns of a waiting loop, 10 to 60 ns each, before a thread sleeps. A worker bridges the gap between two kernels; longer,
# it would be in the way of oneDNN's threads. A caller waits for the last parts.
_WORKER_SPIN, _CALLER_SPIN = 200, 600

_state: int | None = None


def supported() -> bool:
    return sys.platform == "linux" and platform.machine() in _FUTEX


def state_address() -> int:
    """Where the pool keeps its state: memory that exists until the process ends."""
    global _state
    if _state is None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_int64]
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        got = libc.mmap(None, _SIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if got is None or got == ctypes.c_void_p(-1).value:
            raise MemoryError("cannot map memory for the thread pool")
        _state = got
    return _state


def started() -> int:
    """Threads the pool has started."""
    return 0 if _state is None else ctypes.c_int32.from_address(_state + _STARTED).value


def forget() -> None:
    """For a forked child: its parent's threads do not exist here, whatever they were doing."""
    if _state is not None:
        ctypes.memset(_state, 0, _SIZE)


def text() -> str:
    """The LLVM module of the pool."""
    machine = platform.machine()
    return _MODULE.format(
        futex=_FUTEX[machine],
        pause=_PAUSE[machine],
        pause_type=_PAUSE[machine].replace(" 1", ""),
        worker_spin=_WORKER_SPIN,
        caller_spin=_CALLER_SPIN,
        most=MOST_THREADS,
        started=_STARTED,
        job=_JOB,
        epoch=_EPOCH,
        team=_TEAM,
        core=_CORE,
        sleepers=_SLEEPERS,
        pending=_PENDING,
        slots=_SLOTS,
    )


# Futex operations: 128 = private to this process, + 0 wait, 1 wake, 9 wait with a mask, 10 wake with a mask. Bit i of a
# mask is worker i; workers from 31 on share the last bit.
_MODULE = """
@flambeau_pool = external global i8
declare i64 @syscall(i64, ...) #1
declare i32 @pthread_create(ptr, ptr, ptr, ptr) #1
declare i32 @pthread_detach(i64) #1
declare i32 @pthread_sigmask(i32, ptr, ptr) #1
declare i32 @sched_getcpu() #1

define void @flambeau_parallel(ptr %function, ptr %data, i64 %wanted, i64 %parts) #0 {{
  %taken = cmpxchg ptr @flambeau_pool, i32 0, i32 1 acquire monotonic
  %mine = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %mine, label %prepare, label %alone

prepare:
  %team = call i64 @llvm.smin.i64(i64 %wanted, i64 {most})
  %started.at = getelementptr i8, ptr @flambeau_pool, i64 {started}
  %started = load i32, ptr %started.at
  %workers = sext i32 %started to i64
  %ready = add i64 %workers, 1
  %few = icmp slt i64 %ready, %team
  br i1 %few, label %hire, label %publish
hire:
  call void @hire(i64 %ready, i64 %team)
  br label %publish

publish:
  %job = getelementptr i8, ptr @flambeau_pool, i64 {job}
  store ptr %function, ptr %job
  %job.data = getelementptr i8, ptr %job, i64 8
  store ptr %data, ptr %job.data
  %job.parts = getelementptr i8, ptr %job, i64 16
  store i64 %parts, ptr %job.parts
  %team.at = getelementptr i8, ptr @flambeau_pool, i64 {team}
  %team32 = trunc i64 %team to i32
  store atomic i32 %team32, ptr %team.at monotonic, align 4
  %core.at = getelementptr i8, ptr @flambeau_pool, i64 {core}
  %core = call i32 @sched_getcpu()
  store atomic i32 %core, ptr %core.at monotonic, align 4
  %pending = getelementptr i8, ptr @flambeau_pool, i64 {pending}
  %parts32 = trunc i64 %parts to i32
  store atomic i32 %parts32, ptr %pending monotonic, align 4
  br label %offer
offer:
  %slot = phi i64 [ 0, %publish ], [ %slot.next, %offer ]
  %begin = phi i64 [ 0, %publish ], [ %end, %offer ]
  %slot.next = add i64 %slot, 1
  %up.to = mul i64 %slot.next, %parts
  %end = udiv i64 %up.to, %team
  %end.high = shl i64 %end, 32
  %free = or i64 %end.high, %begin
  %slot.offset = mul i64 %slot, 64
  %slot.place = add i64 %slot.offset, {slots}
  %slot.at = getelementptr i8, ptr @flambeau_pool, i64 %slot.place
  store atomic i64 %free, ptr %slot.at release, align 8
  %all = icmp eq i64 %slot.next, %team
  br i1 %all, label %announce, label %offer

announce:
  %epoch = getelementptr i8, ptr @flambeau_pool, i64 {epoch}
  %before = atomicrmw add ptr %epoch, i32 1 seq_cst
  %sleepers.at = getelementptr i8, ptr @flambeau_pool, i64 {sleepers}
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %take
wake:
  %high = icmp sgt i64 %team, 31
  %shift = and i32 %team32, 31
  %bit = shl i32 1, %shift
  %low.mask = sub i32 %bit, 1
  %mask = select i1 %high, i32 -1, i32 %low.mask
  %count = sub i32 %team32, 1
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %epoch, i32 138, i32 %count, ptr null, ptr null, i32 %mask)
  br label %take
take:
  call void @work(i64 0, i64 %team)
  call void @finish()
  store atomic i32 0, ptr @flambeau_pool release, align 4
  ret void

alone:
  %part = phi i64 [ 0, %0 ], [ %part.next, %alone ]
  call void %function(ptr %data, i64 %part, i64 %parts)
  %part.next = add i64 %part, 1
  %over = icmp sge i64 %part.next, %parts
  br i1 %over, label %done, label %alone
done:
  ret void
}}

; Runs free parts, those of its own slot first, until there are none.
define internal void @work(i64 %index, i64 %team) #2 {{
  %job = getelementptr i8, ptr @flambeau_pool, i64 {job}
  %job.data = getelementptr i8, ptr %job, i64 8
  %job.parts = getelementptr i8, ptr %job, i64 16
  br label %look
look:
  %k = phi i64 [ 0, %0 ], [ %k.next, %empty ]
  %done = phi i32 [ 0, %0 ], [ %done.now, %empty ]
  %sum = add i64 %index, %k
  %over = icmp sge i64 %sum, %team
  %less = sub i64 %sum, %team
  %slot = select i1 %over, i64 %less, i64 %sum
  %offset = mul i64 %slot, 64
  %place = add i64 %offset, {slots}
  %at = getelementptr i8, ptr @flambeau_pool, i64 %place
  br label %again
again:
  %done.now = phi i32 [ %done, %look ], [ %done.more, %claimed ]
  %first = load atomic i64, ptr %at monotonic, align 8
  br label %try
try:
  %seen = phi i64 [ %first, %again ], [ %found, %swap ]
  %next = and i64 %seen, 4294967295
  %end = lshr i64 %seen, 32
  %some = icmp ult i64 %next, %end
  br i1 %some, label %swap, label %empty
swap:
  %after = add i64 %seen, 1
  %pair = cmpxchg ptr %at, i64 %seen, i64 %after acq_rel monotonic
  %found = extractvalue {{ i64, i1 }} %pair, 0
  %won = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %won, label %claimed, label %try
claimed:
  %function = load ptr, ptr %job
  %data = load ptr, ptr %job.data
  %parts = load i64, ptr %job.parts
  call void %function(ptr %data, i64 %next, i64 %parts)
  %done.more = add i32 %done.now, 1
  br label %again
empty:
  %k.next = add i64 %k, 1
  %last = icmp eq i64 %k.next, %team
  br i1 %last, label %report, label %look
report:
  %any = icmp ne i32 %done.now, 0
  br i1 %any, label %count, label %return
count:
  %pending = getelementptr i8, ptr @flambeau_pool, i64 {pending}
  %before = atomicrmw sub ptr %pending, i32 %done.now acq_rel
  %left = sub i32 %before, %done.now
  %waited = icmp eq i32 %left, -2147483648
  br i1 %waited, label %wake, label %return
wake:
  %woken = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pending, i32 129, i32 1)
  br label %return
return:
  ret void
}}

; Waits for the parts that workers have claimed and not finished.
define internal void @finish() #2 {{
  %pending = getelementptr i8, ptr @flambeau_pool, i64 {pending}
  br label %spin
spin:
  %n = phi i32 [ 0, %0 ], [ %n.next, %pause ]
  %now = load atomic i32, ptr %pending acquire, align 4
  %zero = icmp eq i32 %now, 0
  br i1 %zero, label %return, label %more
more:
  %n.next = add i32 %n, 1
  %long = icmp ugt i32 %n, {caller_spin}
  br i1 %long, label %mark, label %pause
pause:
  call void {pause}
  br label %spin
mark:
  %before = atomicrmw or ptr %pending, i32 -2147483648 acq_rel
  br label %check
check:
  %left = load atomic i32, ptr %pending acquire, align 4
  %none = icmp eq i32 %left, -2147483648
  br i1 %none, label %return, label %sleep
sleep:
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr %pending, i32 128, i32 %left, ptr null)
  br label %check
return:
  ret void
}}

define internal ptr @worker(ptr %number) #0 {{
  %index = ptrtoint ptr %number to i64
  %epoch = getelementptr i8, ptr @flambeau_pool, i64 {epoch}
  %team.at = getelementptr i8, ptr @flambeau_pool, i64 {team}
  %core.at = getelementptr i8, ptr @flambeau_pool, i64 {core}
  %sleepers = getelementptr i8, ptr @flambeau_pool, i64 {sleepers}
  %index32 = trunc i64 %index to i32
  %shift = call i32 @llvm.umin.i32(i32 %index32, i32 31)
  %mask = shl i32 1, %shift
  br label %look
look:
  %seen = load atomic i32, ptr %epoch acquire, align 4
  %team32 = load atomic i32, ptr %team.at monotonic, align 4
  %team = sext i32 %team32 to i64
  %belongs = icmp slt i64 %index, %team
  br i1 %belongs, label %work, label %sleep
work:
  call void @work(i64 %index, i64 %team)
  ; On the caller's own core waiting would only hold up the caller.
  %core = load atomic i32, ptr %core.at monotonic, align 4
  %here = call i32 @sched_getcpu()
  %same = icmp eq i32 %core, %here
  br i1 %same, label %sleep, label %spin
spin:
  %n = phi i32 [ 0, %work ], [ %n.next, %pause ]
  %now = load atomic i32, ptr %epoch monotonic, align 4
  %new = icmp ne i32 %now, %seen
  br i1 %new, label %look, label %more
more:
  %n.next = add i32 %n, 1
  %long = icmp ugt i32 %n, {worker_spin}
  br i1 %long, label %sleep, label %pause
pause:
  call void {pause}
  br label %spin
sleep:
  %up = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %slept = call i64 (i64, ...) @syscall(i64 {futex}, ptr %epoch, i32 137, i32 %seen, ptr null, ptr null, i32 %mask)
  %down = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
}}

; Starts the workers first, ..., team - 1. They take no signals but those that their own faults raise.
define internal void @hire(i64 %first, i64 %team) #2 {{
  %all = alloca [128 x i8], align 16
  %old = alloca [128 x i8], align 16
  %thread = alloca i64
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  ; illegal instruction 4, trap 5, abort 6, bus error 7, floating point 8, segmentation 11
  store i64 -1273, ptr %all
  %hidden = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %start
start:
  %index = phi i64 [ %first, %0 ], [ %next, %started ]
  %number = inttoptr i64 %index to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %number)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %started, label %return
started:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  %count.at = getelementptr i8, ptr @flambeau_pool, i64 {started}
  %count = trunc i64 %index to i32
  store i32 %count, ptr %count.at
  %next = add i64 %index, 1
  %enough = icmp eq i64 %next, %team
  br i1 %enough, label %return, label %start
return:
  %shown = call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  ret void
}}

declare void {pause_type}
declare i64 @llvm.smin.i64(i64, i64)
declare i32 @llvm.umin.i32(i32, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
attributes #0 = {{ nounwind }}
attributes #1 = {{ nounwind nonlazybind }}
attributes #2 = {{ noinline nounwind }}
!llvm.module.flags = !{{!0}}
!0 = !{{i32 7, !"RtLibUseGOT", i32 1}}
"""

__all__ = ["MOST_THREADS", "forget", "started", "state_address", "supported", "text"]
