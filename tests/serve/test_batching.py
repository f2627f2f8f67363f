"""Which jobs go together: batches, continuous batches, sequences."""

from __future__ import annotations

import itertools

from flambeau.serve.batching import Batcher, ContinuousBatcher, ContinuousSequenceBatcher, SequenceBatcher, batcher_for
from flambeau.serve.job import CallbackJob, Job
from flambeau.serve.settings import ModelSettings

NUMBERS = itertools.count()


class Record:
    def __init__(self):
        self.failed: list[tuple[int, str]] = []
        self.open = True


def job(
    sequence: str = "", describe: bool = False, headers: dict | None = None, timeout: int = 0
) -> tuple[Job, Record]:
    record = Record()
    made = CallbackJob(str(next(NUMBERS)), headers or {}, [], lambda *a: None, lambda *a: record.failed.append(a), lambda: record.open,
               describe=describe, sequence=sequence, client_timeout_ms=timeout)  # fmt: skip
    return made, record


def settings(**options) -> ModelSettings:
    return ModelSettings(**{"max_batch_delay": 0, **options})


def test_kinds():
    assert type(batcher_for(settings(), ("id", "start", "end"))) is Batcher
    assert type(batcher_for(settings(continuous_batching=True), ("id", "start", "end"))) is ContinuousBatcher
    assert type(batcher_for(settings(sequence_batching=True), ("id", "start", "end"))) is SequenceBatcher
    both = settings(sequence_batching=True, continuous_batching=True)
    assert type(batcher_for(both, ("id", "start", "end"))) is ContinuousSequenceBatcher


def test_batches_are_full_or_old():
    batcher = Batcher(settings(batch_size=2, max_batch_delay=10_000))
    first, second, third = (job()[0] for _ in range(3))
    batcher.offer(first)
    wait = batcher.take("w")
    assert isinstance(wait, float) and 9 < wait <= 10
    batcher.offer(second)
    batcher.offer(third)
    assert batcher.take("w") == [first, second]
    batcher.settings.max_batch_delay = 0
    assert batcher.take("w") == [third]
    assert batcher.take("w") == []


def test_the_queue_has_an_end():
    batcher = Batcher(settings(job_queue_size=2))
    assert [batcher.offer(job()[0]) for _ in range(3)] == [True, True, False]


def test_descriptions_go_alone():
    batcher = Batcher(settings(batch_size=4))
    jobs = [job()[0], job(describe=True)[0], job()[0]]
    for j in jobs:
        batcher.offer(j)
    assert [batcher.take("w"), batcher.take("w"), batcher.take("w")] == [[j] for j in jobs]


def test_those_who_left_or_waited_too_long_are_skipped():
    batcher = Batcher(settings(batch_size=4))
    gone, record = job()
    late, _ = job(timeout=1)
    late.expires = 0.0
    good, _ = job()
    record.open = False
    for j in (gone, late, good):
        batcher.offer(j)
    assert batcher.take("w") == [good]


def test_unseen_jobs_go_back_to_the_front():
    batcher = Batcher(settings(batch_size=2))
    jobs = [job()[0] for _ in range(3)]
    for j in jobs:
        batcher.offer(j)
    batcher.give_back(batcher.take("w"))
    assert batcher.take("w") == jobs[:2]


def test_continuous_batches_keep_what_is_not_done():
    batcher = ContinuousBatcher(settings(batch_size=2))
    a, b, c = (job()[0] for _ in range(3))
    for j in (a, b, c):
        batcher.offer(j)
    assert batcher.take("w") == [a, b]
    batcher.done("w", a, {}, True)
    batcher.done("w", b, {}, False)
    assert a.cached
    assert batcher.take("w") == [a, c]
    batcher.done("w", a, {}, False)
    batcher.done("w", c, {}, True)
    assert batcher.take("w") == [c]
    batcher.lost("w")
    assert batcher.take("w") == []


def test_continuous_batches_drop_who_left():
    batcher = ContinuousBatcher(settings(batch_size=2))
    a, record = job()
    batcher.offer(a)
    batcher.take("w")
    batcher.done("w", a, {}, True)
    record.open = False
    assert batcher.take("w") == []


def sequences(**options) -> SequenceBatcher:
    values = {
        "sequence_batching": True,
        "sequence_max_idle_ms": 60_000,
        "max_num_sequence": 2,
        "max_sequence_job_queue_size": 3,
    }
    return SequenceBatcher(settings(**{**values, "batch_size": 2, **options}), ("id", "start", "end"))


def test_a_sequence_stays_with_its_worker_and_in_order():
    batcher = sequences()
    a1, a2, b1 = job("a")[0], job("a")[0], job("b")[0]
    for j in (a1, a2, b1):
        assert batcher.offer(j)
    assert batcher.take("w1") == [a1, b1]
    assert batcher.take("w1") == []  # one job of a sequence at a time
    batcher.done("w1", a1, {}, False)
    assert batcher.take("w2") == []
    assert batcher.take("w1") == [a2]


def test_sequences_have_limits():
    batcher = sequences(max_sequence_job_queue_size=1)
    assert batcher.offer(job("a")[0])
    assert not batcher.offer(job("a")[0])
    assert batcher.offer(job("b")[0])
    assert not batcher.offer(job("c")[0])


def test_a_sequence_ends_when_its_client_or_handler_says_so():
    batcher = sequences()
    last, _ = job("a", headers={"end": "true"})
    batcher.offer(last)
    batcher.take("w")
    batcher.done("w", last, {}, False)
    assert batcher.sequences == {}
    one, _ = job("b")
    batcher.offer(one)
    batcher.take("w")
    left, record = job("b")
    batcher.offer(left)
    batcher.done("w", one, {"end": "b; c"}, False)
    assert batcher.sequences == {}
    assert record.failed


def test_what_comes_after_the_end_is_refused_unless_it_starts_anew():
    batcher = sequences()
    last, _ = job("a", headers={"end": "true"})
    batcher.offer(last)
    batcher.take("w")
    batcher.done("w", last, {}, False)
    assert not batcher.offer(job("a")[0])
    assert batcher.offer(job("a", headers={"start": "true"})[0])


def test_idle_sequences_are_forgotten():
    batcher = sequences()
    one, _ = job("a")
    batcher.offer(one)
    batcher.take("w")
    batcher.done("w", one, {}, False)
    batcher.sequences["a"].idle_since -= 61
    assert batcher.offer(job("b")[0])
    assert list(batcher.sequences) == ["b"]


def test_sequences_of_a_dead_worker_are_told():
    batcher = sequences()
    one, _ = job("a")
    batcher.offer(one)
    batcher.take("w")
    waiting, record = job("a")
    batcher.offer(waiting)
    batcher.lost("w")
    assert record.failed == [(500, "Worker died.")]
    assert batcher.sequences == {}


def test_continuous_sequences_are_stepped_together():
    batcher = ContinuousSequenceBatcher(
        settings(sequence_batching=True, continuous_batching=True, sequence_max_idle_ms=60_000, max_num_sequence=4, batch_size=2), ("id", "start", "end"))  # fmt: skip
    a, b = job("a")[0], job("b")[0]
    batcher.offer(a)
    assert batcher.take("w") == [a]
    batcher.done("w", a, {}, True)
    stop = job("a")[0]
    batcher.offer(b)
    batcher.offer(stop)
    assert batcher.take("w") == [a, stop, b]  # a request can stop an answer of its sequence that is still streamed
    for j in (a, stop, b):
        batcher.done("w", j, {}, False)
    assert batcher.take("w") == []
