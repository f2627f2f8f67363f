"""Replacements for torchaudio's native library, which is linked against PyTorch (see `absent.py`): answers to its queries at import, and its
loops that have no other form: filters, the transducer's loss, alignment."""

from __future__ import annotations

from typing import Any

from ..core.tensor import Tensor
from ..kernels.library.ctc import add_logs, label_of
from ..kernels.loops import exp, inf, like, loop_kernel, prange
from .registration import Library

_probes, _loops = Library("_torchaudio", "FRAGMENT"), Library("torchaudio", "FRAGMENT")


@loop_kernel
def filter_rows(out, x, a, rows, channels, n, order):
    """Recursive filter of every row: out[t + order - 1] = x[t] - sum of a[k] * out[t + k]."""
    for i in prange(rows, 2 * n * order):
        start, coefficients = i * (n + order - 1), (i % channels) * order
        for t in range(n):
            total = x[i * n + t]
            for k in range(order):
                total -= out[start + t + k] * a[coefficients + k]
            out[start + t + order - 1] = total


@loop_kernel
def overdrive_rows(out, x, distorted, last_in, last_out, rows, n):
    """A high-pass filter of the distorted rows, mixed with the rows themselves."""
    for i in prange(rows, 8 * n):
        before, sound = last_in[i], last_out[i]
        for t in range(n):
            now = distorted[i * n + t]
            sound = now - before + 0.995 * sound
            before = now
            out[i * n + t] = x[i * n + t] * 0.5 + sound * 0.75


@loop_kernel
def transducer_rows(
    costs, grads, alpha, beta, scores, targets, steps_of, length_of, samples, steps, states, classes, blank, fused
):
    """Costs of a transducer (Graves, 2012) and their gradients by the scores (samples, steps, states, classes), or, if `fused`, by the inputs
    of their log_softmax. `alpha` and `beta` are logarithms of the sums over paths to a node of the lattice and from it to the end."""
    for n in prange(samples, 16 * steps * states * classes):
        last, length = steps_of[n] - 1, length_of[n]
        for t in range(last + 1):
            for u in range(length + 1):
                node = (n * steps + t) * states + u
                total = like(scores, 0) if t + u == 0 else like(scores, -inf)
                if t > 0:
                    total = add_logs(total, alpha[node - states] + scores[(node - states) * classes + blank])
                if u > 0:
                    label = targets[n * (states - 1) + u - 1]
                    total = add_logs(total, alpha[node - 1] + scores[(node - 1) * classes + label])
                alpha[node] = total
        for back in range(last + 1):
            for left in range(length + 1):
                t, u = last - back, length - left
                node = (n * steps + t) * states + u
                total = scores[node * classes + blank] if back + left == 0 else like(scores, -inf)
                if back > 0:
                    total = add_logs(total, beta[node + states] + scores[node * classes + blank])
                if left > 0:
                    total = add_logs(total, beta[node + 1] + scores[node * classes + targets[n * (states - 1) + u]])
                beta[node] = total
        whole = beta[n * steps * states]
        costs[n] = -whole
        for t in range(last + 1):
            for u in range(length + 1):
                node = (n * steps + t) * states + u
                reached = alpha[node] - whole
                for c in range(classes):
                    score = scores[node * classes + c]
                    grad = exp(reached + beta[node] + score) if fused != 0 else like(scores, 0)
                    if c == blank and t < last:
                        grad -= exp(reached + score + beta[node + states])
                    if c == blank and t == last and u == length:
                        grad -= exp(reached + score)
                    if u < length and c == targets[n * (states - 1) + u]:
                        grad -= exp(reached + score + beta[node + 1])
                    grads[node * classes + c] = grad


@loop_kernel
def align_row(path, came, best, scores, targets, steps, classes, states, blank):
    """Find the most probable path through the states of CTC: the class at each step. `best` holds two rows of states, `came` the previous
    states."""
    for _ in prange(1, 1):
        for t in range(steps):
            now, before = (t % 2) * states, ((t + 1) % 2) * states
            for s in range(states):
                label = label_of(targets, 0, s, blank)
                chosen, step = like(scores, 0) if s < 2 else like(scores, -inf), 0
                if t > 0:
                    chosen = best[before + s]
                    one = best[before + s - 1] if s > 0 else like(scores, -inf)
                    two = like(scores, -inf)
                    if s > 1 and label != blank and label != label_of(targets, 0, s - 2, blank):
                        two = best[before + s - 2]
                    if two > one and two > chosen:
                        chosen, step = two, 2
                    elif one > chosen and one > two:
                        chosen, step = one, 1
                best[now + s] = chosen + scores[t * classes + label]
                came[t * states + s] = step
        end = ((steps + 1) % 2) * states
        state = states - 1
        if states > 1 and best[end + states - 1] <= best[end + states - 2]:
            state = states - 2
        for back in range(steps):
            t = steps - 1 - back
            path[t] = label_of(targets, 0, state, blank)
            state -= came[t * states + state]


def _rnnt_loss(logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int, clamp: float, fused_log_softmax: bool) -> tuple[Tensor, Tensor]:  # fmt: skip
    samples, steps, states, classes = logits.shape
    _check_range("rnnt_loss", "logit_lengths", logit_lengths, 1, steps)
    _check_range("rnnt_loss", "target_lengths", target_lengths, 0, states - 1)
    _check_range("rnnt_loss", "targets", targets, 0, classes - 1)
    if targets.shape != (samples, states - 1) or len(logit_lengths) != samples or len(target_lengths) != samples:
        raise RuntimeError(
            f"rnnt_loss: logits of shape {tuple(logits.shape)} need targets of shape {(samples, states - 1)} and {samples} lengths,"
            f" but got targets of shape {tuple(targets.shape)}, {len(logit_lengths)} and {len(target_lengths)} lengths"
        )
    if not 0 <= blank < classes:
        raise RuntimeError(f"rnnt_loss: blank must be within [0, {classes}), but got {blank}")
    scores = (logits.detach().log_softmax(-1) if fused_log_softmax else logits.detach()).contiguous()
    costs, grads = scores.new_empty(samples), scores.new_zeros(scores.shape)
    alpha, beta = (scores.new_empty((samples, steps, states)) for _ in range(2))
    counts = (t.long().contiguous() for t in (targets, logit_lengths, target_lengths))
    transducer_rows(
        costs, grads, alpha, beta, scores, *counts, samples, steps, states, classes, blank, int(fused_log_softmax)
    )
    return costs, grads.clamp(-clamp, clamp) if clamp > 0 else grads


def _forced_align(log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int) -> tuple[Tensor, Tensor]:  # fmt: skip
    if log_probs.dim() != 3 or targets.dim() != 2 or len(log_probs) != 1 or len(targets) != 1:
        raise RuntimeError(
            "forced_align: expected log_probs (1, T, C) and targets (1, L): the batch dimension must be 1, but got"
            f" {tuple(log_probs.shape)} and {tuple(targets.shape)}"
        )
    _, steps, classes = log_probs.shape
    if int(input_lengths[0]) != steps or int(target_lengths[0]) != targets.shape[1]:
        raise RuntimeError("forced_align: input_lengths and target_lengths must be those of log_probs and targets")
    if not 0 <= blank < classes:
        raise RuntimeError(f"forced_align: blank must be within [0, {classes}), but got {blank}")
    _check_range("forced_align", "targets", targets, 0, classes - 1)
    repeats = int((targets[0, 1:] == targets[0, :-1]).sum())
    if steps < targets.shape[1] + repeats:
        raise RuntimeError(
            f"forced_align: targets length is too long for CTC. Found log_probs length: {steps}, targets length:"
            f" {targets.shape[1]}, and number of repeats: {repeats}"
        )
    scores, labels = log_probs.detach().contiguous(), targets.long().contiguous()
    states = 2 * targets.shape[1] + 1
    path, came = labels.new_empty((1, steps)), labels.new_empty((steps, states))
    align_row(path, came, scores.new_empty((2, states)), scores, labels, steps, classes, states, blank)
    return path.to(targets.dtype), log_probs.clone()


def _check_range(name: str, argument: str, given: Tensor, low: int, high: int) -> None:
    if given.numel() and not low <= int(given.min()) <= int(given.max()) <= high:
        raise RuntimeError(f"{name}: {argument} must be within [{low}, {high}], but got {given.tolist()}")


def _lfilter(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    x, a, out = input_signal_windows, a_coeff_flipped, padded_output_waveform
    _check("_lfilter_core_loop", x, a, out)
    batch, channels, n = x.shape
    filter_rows(out, x.contiguous(), a.contiguous(), batch * channels, channels, n, a.shape[1])
    return out


def _overdrive(waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor) -> Tensor:
    _check("_overdrive_core_loop", waveform, temp, last_in, last_out, output_waveform)
    given = (t.contiguous() for t in (waveform, temp, last_in, last_out))
    overdrive_rows(output_waveform, *given, *waveform.shape)
    return output_waveform


def _check(name: str, *tensors: Any) -> None:
    if len({(t.dtype, t.device) for t in tensors}) > 1 or not tensors[-1].is_contiguous():
        told = ", ".join(f"{t.dtype} on {t.device}" for t in tensors)
        raise RuntimeError(
            f"{name}: expected tensors of one dtype on one device and a contiguous result, but got {told}"
        )


for _library, _schema, _function in (
    (_probes, "cuda_version() -> int?", lambda: None),
    (_probes, "is_align_available() -> bool", lambda: True),
    (_loops, "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) -> Tensor(a!)", _lfilter),
    (_loops, "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor last_in, Tensor last_out, Tensor(a!) output_waveform) -> Tensor(a!)", _overdrive),
    (_loops, "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp, bool fused_log_softmax) -> (Tensor, Tensor)", _rnnt_loss),
    (_loops, "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) -> (Tensor, Tensor)", _forced_align),
):  # fmt: skip
    _library.define(_schema)
    _library.impl(_schema.partition("(")[0], _function, "CompositeExplicitAutograd")
