"""Connectionist temporal classification (Graves et al., 2006) in logarithms, forward and backward.

A target of length L becomes 2L + 1 states: blanks around and between its labels. `alpha[n, t, s]` is the logarithm of the
probability of all ways to be in state s after step t; `beta` the same from the other end. Scores are (steps, samples,
classes), targets a matrix padded to `width` labels; lengths and labels are checked by the caller.
"""

from __future__ import annotations

from ..loops import exp, inf, like, log, loop_kernel, maximum, prange, scalar_function


@scalar_function
def label_of(targets, start, state, blank):
    """The class that a state emits."""
    return blank if state % 2 == 0 else targets[start + state // 2]


@scalar_function
def add_logs(a, b):
    """log(exp(a) + exp(b)); -inf stands for nothing."""
    top = maximum(a, b)
    result = top
    if top != -inf:
        result = top + log(exp(a - top) + exp(b - top))
    return result


@scalar_function
def add_three_logs(a, b, c):
    """log(exp(a) + exp(b) + exp(c))"""
    top = maximum(maximum(a, b), c)
    result = top
    if top != -inf:
        result = top + log(exp(a - top) + exp(b - top) + exp(c - top))
    return result


@loop_kernel
def ctc_forward(nll, alpha, scores, targets, input_lengths, target_lengths, steps, samples, classes, width, blank):
    """Compute CTC's forward variables `alpha` and the negative log-likelihood of every sample."""
    states = 2 * width + 1
    for n in prange(samples, 8 * steps * states):
        start = n * width
        used = 2 * target_lengths[n] + 1
        last = input_lengths[n]
        for t in range(last):
            row = (n * steps + t) * states
            score = (t * samples + n) * classes
            for s in range(used):
                label = label_of(targets, start, s, blank)
                reach = like(scores, 0) if s < 2 else like(scores, -inf)
                if t > 0:
                    reach = alpha[row - states + s]
                    # A blank between equal labels cannot be skipped.
                    if s > 1 and label != label_of(targets, start, s - 2, blank):
                        reach = add_three_logs(reach, alpha[row - states + s - 1], alpha[row - states + s - 2])
                    elif s > 0:
                        reach = add_logs(reach, alpha[row - states + s - 1])
                alpha[row + s] = reach + scores[score + label]
        if last == 0:
            nll[n] = 0 if used == 1 else inf
        else:
            row = (n * steps + last - 1) * states
            total = alpha[row + used - 1]
            if used > 1:
                total = add_logs(total, alpha[row + used - 2])
            nll[n] = -total


@loop_kernel
def ctc_backward(
    grad_scores, grad, nll, alpha, beta, scores, targets, input_lengths, target_lengths, steps, samples, classes, width,
    blank, zero_infinity,
):  # fmt: skip
    """The gradient with respect to normalised scores."""
    states = 2 * width + 1
    for n in prange(samples, 8 * steps * (states + classes)):
        start = n * width
        used = 2 * target_lengths[n] + 1
        last = input_lengths[n]
        loss = nll[n]
        g = grad[n]
        silent = zero_infinity != 0 and loss == inf
        for back in range(steps):
            t = steps - 1 - back
            row = (n * steps + t) * states
            score = (t * samples + n) * classes
            for c in range(classes):
                grad_scores[score + c] = exp(scores[score + c]) * g if t < last and not silent else like(scores, 0)
            if t < last and not silent:
                for s in range(used):
                    label = label_of(targets, start, s, blank)
                    reach = like(scores, 0) if s >= used - 2 else like(scores, -inf)
                    if t < last - 1:
                        reach = beta[row + states + s]
                        if s + 2 < used and label != label_of(targets, start, s + 2, blank):
                            reach = add_three_logs(reach, beta[row + states + s + 1], beta[row + states + s + 2])
                        elif s + 1 < used:
                            reach = add_logs(reach, beta[row + states + s + 1])
                    v = scores[score + label]
                    beta[row + s] = reach + v
                    # The probability of being in this state, which alpha and beta both count with its own score.
                    here = exp(alpha[row + s] + reach + loss)
                    grad_scores[score + label] = grad_scores[score + label] - here * g
