"""Threads that run vmap, autocast, plain arithmetic and training side by side: no error, no wrong value, nothing left on a stack.

python -m tests.side_by_side --seconds 60
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator

import flambeau as torch
from flambeau.core import modes

X, WEIGHT = torch.arange(12.0).reshape(4, 3), torch.eye(3) * 2


def mapped() -> None:
    assert torch.equal(torch.func.vmap(lambda v: (v * 2).sum())(X), (X * 2).sum(1))
    slopes = torch.func.vmap(torch.func.grad(lambda v: (v @ WEIGHT).square().sum()))(X)
    assert torch.equal(slopes, 8 * X)


def cast() -> None:
    with torch.autocast("cpu"):
        product = X @ WEIGHT
        assert product.dtype is torch.bfloat16 and (product.float() + 1).dtype is torch.float32
    assert (X @ WEIGHT).dtype is torch.float32


def plain() -> None:
    assert torch.equal(X @ WEIGHT, X * 2) and (X + 1).sum().item() == 78.0
    w = WEIGHT.clone().requires_grad_()
    (X @ w).sum().backward()
    assert w.grad is not None and torch.equal(w.grad, X.sum(0)[:, None].expand(3, 3))


class Counting(modes.Mode):
    """A mode that must see the calls of its own thread only."""

    def __init__(self) -> None:
        self.thread, self.seen = threading.get_ident(), 0

    def handle(self, op: object, function: Callable, args: tuple, kwargs: dict) -> object:
        assert threading.get_ident() == self.thread, "a call of another thread"
        self.seen += 1
        return function(*args, **kwargs)


def watched() -> None:
    with Counting() as mode:
        assert torch.equal(X + X, X * 2)
    assert mode.seen >= 3


WORK = (mapped, cast, plain, watched)


def run(seconds: float, threads: int = 2) -> tuple[int, list[BaseException]]:
    """How many rounds the threads made, each beginning elsewhere, and what went wrong in them."""
    stop, problems, rounds = threading.Event(), [], [0] * threads

    def loop(place: int) -> None:
        try:
            for work in _from(place):
                if stop.is_set():
                    break
                work()
                rounds[place] += 1
                assert not any(isinstance(m, (Counting, torch.func.batching.Level)) for m in modes.own.stack)
        except BaseException as problem:
            problems.append(problem)
            stop.set()

    workers = [threading.Thread(target=loop, args=(place,)) for place in range(threads)]
    for worker in workers:
        worker.start()
    stop.wait(seconds)
    stop.set()
    for worker in workers:
        worker.join()
    return sum(rounds), problems


def _from(place: int) -> Iterator[Callable[[], None]]:
    while True:
        yield WORK[place % len(WORK)]
        place += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3)
    given = parser.parse_args()
    before, start = len(modes.active), time.perf_counter()
    rounds, problems = run(given.seconds)
    left = len(modes.active) - before
    print(f"{rounds} rounds in {time.perf_counter() - start:.0f} s, {len(problems)} errors, {left} modes left")
    if problems:
        raise problems[0]
    return left != 0


if __name__ == "__main__":
    raise SystemExit(main())
