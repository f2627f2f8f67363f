"""The transducer's loss and CTC alignment, as torchaudio calls them, against sums and searches over all ways."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import flambeau
from flambeau.core import naming

naming.above("library.torchaudio")
audio: Any = flambeau.ops.torchaudio


def _all_ways(scores: Any, targets: list[int], steps: int, blank: int) -> Any:
    """-log of the sum over all orders of `steps` blanks, the last of which ends it, and the targets."""
    ways = []
    for places in itertools.combinations(range(steps - 1 + len(targets)), len(targets)):
        t = u = 0
        total = flambeau.zeros(())
        for k in range(steps - 1 + len(targets)):
            if k in places:
                total, u = total + scores[t, u, targets[u]], u + 1
            else:
                total, t = total + scores[t, u, blank], t + 1
        ways.append(total + scores[t, u, blank])
    return -flambeau.stack(ways).logsumexp(0)


@pytest.mark.parametrize("fused", [True, False])
def test_transducer_loss_and_gradient(fused: bool) -> None:
    flambeau.manual_seed(0)
    logits = flambeau.randn(2, 4, 3, 5, dtype=flambeau.float64, requires_grad=True)
    targets, steps, lengths = [[1, 3], [2, 0]], [4, 3], [2, 1]
    scores = logits.log_softmax(-1) if fused else logits
    expected = [_all_ways(scores[n], targets[n][: lengths[n]], steps[n], 4) for n in range(2)]
    (gradient,) = flambeau.autograd.grad(sum(expected), logits)
    given = [flambeau.tensor(x, dtype=flambeau.int32) for x in (targets, steps, lengths)]
    costs, grads = audio.rnnt_loss_forward(logits, *given, 4, -1.0, fused)
    flambeau.testing.assert_close(costs, flambeau.stack(expected).detach())
    flambeau.testing.assert_close(grads, gradient)
    clamped = audio.rnnt_loss_forward(logits, *given, 4, 0.01, fused)[1]
    flambeau.testing.assert_close(clamped, gradient.clamp(-0.01, 0.01))


def test_transducer_lengths_are_checked() -> None:
    logits, one = flambeau.zeros(1, 2, 2, 3), flambeau.tensor([1])
    for targets, steps, lengths in (([[3]], [2], [1]), ([[1]], [3], [1]), ([[1]], [2], [2]), ([[1, 1]], [2], [1])):
        with pytest.raises(RuntimeError, match="rnnt_loss"):
            audio.rnnt_loss_forward(logits, *map(flambeau.tensor, (targets, steps, lengths)), 0, -1.0, True)
    with pytest.raises(RuntimeError, match="blank"):
        audio.rnnt_loss_forward(logits, flambeau.tensor([[1]]), one, one, 3, -1.0, True)


def _collapsed(path: tuple[int, ...]) -> list[int]:
    return [label for label, _ in itertools.groupby(path) if label != 0]


@pytest.mark.parametrize("target", [[1, 2], [1, 1], [2], [2, 1, 2]])
def test_alignment_is_the_best_of_all_paths(target: list[int]) -> None:
    flambeau.manual_seed(1)
    scores = flambeau.randn(1, 6, 3).log_softmax(-1)
    lengths = flambeau.tensor([6]), flambeau.tensor([len(target)])
    path, kept = audio.forced_align(scores, flambeau.tensor([target], dtype=flambeau.int32), *lengths, 0)
    rows = scores[0].tolist()
    fits = [p for p in itertools.product(range(3), repeat=6) if _collapsed(p) == target]
    best = max(fits, key=lambda p: math.fsum(rows[t][label] for t, label in enumerate(p)))
    assert path.tolist() == [list(best)]
    assert path.dtype == flambeau.int32
    assert flambeau.equal(kept, scores)


def test_alignment_refuses_what_does_not_fit() -> None:
    scores = flambeau.zeros(1, 2, 3)
    with pytest.raises(RuntimeError, match="too long"):
        audio.forced_align(scores, flambeau.tensor([[1, 1]]), flambeau.tensor([2]), flambeau.tensor([2]), 0)
    with pytest.raises(RuntimeError, match="batch"):
        audio.forced_align(
            flambeau.zeros(2, 2, 3), flambeau.tensor([[1]]), flambeau.tensor([2]), flambeau.tensor([1]), 0
        )
