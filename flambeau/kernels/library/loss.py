"""Losses over classes: softmax cross entropy in one pass over the scores, and the negative log-likelihood.

A kernel sees scores of shape (outer, n, inner) with classes in the middle and one target per (outer, inner). `stats` is
the memory between forward and backward, in the dtype the scores compute in: three numbers per target (the largest
score, the logarithm of the sum of exponentials relative to it, the loss), then TOTALS: the sum of the targets'
weights, the sum of all class weights, and 1 if some target is no class (nothing is read or written outside for it).
`soft` receives the probabilities, softmax(x), where a backward pass may come; it reads nothing else of the scores. With
`from_scores` it is given the scores instead, or what `copies` has made `soft`, a copy of them, and finds the probabilities again.
"""

from __future__ import annotations

from ..loops import exp, f64, inf, like, local, log, loop_kernel, maximum, minimum, prange, scalar_function, simd

TOTALS = 3
BLOCK = 64  # columns handled together when classes are not the last dimension


@scalar_function
def class_weights(x, weight, n):
    """Compute the sum of all class weights."""
    total = like(x, 0)
    if weight is None:
        total = like(x, n)
    else:
        for j in range(n):
            total = total + weight[j]
    return total


@scalar_function
def weighted_sum(x, weight, base, n, step):
    """Sum over classes of weight times score."""
    total = like(x, 0)
    for j in range(n):
        total += x[base + j * step] if weight is None else x[base + j * step] * weight[j]
    return total


@scalar_function
def target_loss(x, target, weight, stats, place, base, n, step, top, shift, ignore, smoothing, all_weights, *, smooth):
    """Return the loss of one target from the row's statistics; a target that is no class counts as ignored."""
    t = target[place]
    value = like(x, 0)
    if t != ignore and 0 <= t < n:
        w = like(x, 1) if weight is None else like(x, weight[t])
        value = (shift - (x[base + t * step] - top)) * w
        if smooth:
            spread = (top + shift) * all_weights - weighted_sum(x, weight, base, n, step)
            value = value * (1 - smoothing) + spread * (smoothing / n)
    stats[3 * place] = top
    stats[3 * place + 1] = shift
    stats[3 * place + 2] = value


@scalar_function
def reduce_losses(loss, stats, target, weight, count, n, ignore, all_weights, *, reduction):
    """Compute the result and the totals, summed in order so that it does not depend on the number of threads."""
    weights = f64(0)
    losses = f64(0)
    bad = 0
    for place in range(count):
        t = target[place]
        inside = 0 <= t < n
        if t != ignore:
            bad = bad if inside else 1
            if inside:
                weights += f64(1) if weight is None else f64(weight[t])
        if reduction == "none":
            loss[place] = stats[3 * place + 2]
        else:
            losses += f64(stats[3 * place + 2])
    if reduction == "mean":
        loss[0] = losses / weights
    elif reduction == "sum":
        loss[0] = losses
    stats[3 * count] = weights
    stats[3 * count + 1] = all_weights
    stats[3 * count + 2] = bad


@loop_kernel
def cross_entropy_rows(
    loss, stats, soft, x, target, weight, rows, n, ignore, smoothing, *, reduction, smooth, on_host=True, copies=False
):
    """loss = -weight[t] * log softmax(x)[t], mixed with the mean over classes if `smooth`; one number unless reduction is "none"."""
    all_weights = class_weights(x, weight, n)
    for i in prange(rows, 4 * n):
        base = i * n
        top = like(x, -inf)
        for j in range(n):
            top = maximum(top, x[base + j])
        total = like(x, 0)
        if soft is None or copies or not on_host:
            for j in range(n):
                total += exp(x[base + j] - top)
            if copies and soft is not None:
                for j in simd(n):
                    soft[base + j] = x[base + j]
            elif soft is not None:  # computed again: that is less work than to store it twice
                shift = log(total)
                for j in simd(n):
                    soft[base + j] = exp(x[base + j] - top - shift)
        else:
            for j in range(n):
                e = exp(x[base + j] - top)
                soft[base + j] = e
                total += e
            factor = 1 / total
            for j in simd(n):
                soft[base + j] = soft[base + j] * factor
        target_loss(
            x, target, weight, stats, i, base, n, 1, top, log(total), ignore, smoothing, all_weights, smooth=smooth
        )
    reduce_losses(loss, stats, target, weight, rows, n, ignore, all_weights, reduction=reduction)


@loop_kernel
def cross_entropy_columns(
    loss, stats, soft, x, target, weight, outer, n, inner, ignore, smoothing, *, reduction, smooth, on_host=True, copies=False
):  # fmt: skip
    """Compute cross entropy with classes before the last dimension, BLOCK neighbouring columns at a time."""
    all_weights = class_weights(x, weight, n)
    blocks = (inner + BLOCK - 1) // BLOCK
    for task in prange(outer * blocks, 4 * n * BLOCK):
        first = task % blocks * BLOCK
        width = minimum(BLOCK, inner - first)
        base = task // blocks * n * inner + first
        place = task // blocks * inner + first
        top = local(x, BLOCK)
        total = local(x, BLOCK)
        for c in range(width):
            top[c] = -inf
            total[c] = 0
        for k in range(n):
            for c in simd(width):
                top[c] = maximum(top[c], x[base + k * inner + c])
        for k in range(n):
            for c in simd(width):
                e = exp(x[base + k * inner + c] - top[c])
                if copies and soft is not None:
                    soft[base + k * inner + c] = x[base + k * inner + c]
                elif soft is not None and on_host:
                    soft[base + k * inner + c] = e
                total[c] = total[c] + e
        if soft is not None and not copies:
            for k in range(n):
                for c in simd(width):
                    e = soft[base + k * inner + c] if on_host else exp(x[base + k * inner + c] - top[c])
                    soft[base + k * inner + c] = e / total[c]
        for c in range(width):
            target_loss(
                x, target, weight, stats, place + c, base + c, n, inner, top[c], log(total[c]), ignore, smoothing,
                all_weights, smooth=smooth,
            )  # fmt: skip
    reduce_losses(loss, stats, target, weight, outer * inner, n, ignore, all_weights, reduction=reduction)


@scalar_function
def target_gradient(grad, stats, target, weight, place, count, n, ignore, smoothing, *, reduction, smooth):
    """Return the parts of a row's gradient: the target's share, and the part spread over all classes by smoothing."""
    t = target[place]
    g = like(stats, grad[place if reduction == "none" else 0])
    if reduction == "mean":
        g = g / stats[3 * count]
    w = like(stats, 0)
    if t != ignore and 0 <= t < n:
        w = like(stats, 1) if weight is None else like(stats, weight[t])
    else:
        g = like(stats, 0)
    hit = g * w
    spread = like(stats, 0)
    if smooth:
        hit = hit * (1 - smoothing)
        spread = g * (smoothing / n)
    return hit, spread


@scalar_function
def probability(soft, stats, at, place, *, from_scores):
    """Return a probability of one of a target's classes."""
    v = like(stats, soft[at])
    if from_scores:
        v = exp(v - stats[3 * place] - stats[3 * place + 1])
    return v


@loop_kernel
def totals(loss, stats, target, rows, n, ignore, *, reduction):
    """Compute the result and the totals from the statistics of all rows."""
    reduce_losses(loss, stats, target, None, rows, n, ignore, like(stats, n), reduction=reduction)


@loop_kernel
def cross_entropy_backward_rows(
    grad_x, grad, stats, soft, target, weight, rows, n, ignore, smoothing, *, reduction, smooth, from_scores=False
):
    for i in prange(rows, n):
        base = i * n
        hit, spread = target_gradient(
            grad, stats, target, weight, i, rows, n, ignore, smoothing, reduction=reduction, smooth=smooth
        )
        if hit == 0 and spread == 0:
            for j in simd(n):
                grad_x[base + j] = 0
        else:
            level = hit + spread * stats[3 * rows + 1]
            t = base + target[i]  # whose share is found before anything is stored: the gradient may lie over the scores
            own = probability(soft, stats, t, i, from_scores=from_scores) * level - hit
            if smooth:
                own = own - (spread if weight is None else spread * weight[target[i]])
            for j in simd(n):
                v = probability(soft, stats, base + j, i, from_scores=from_scores) * level
                if smooth:
                    v = v - (spread if weight is None else spread * weight[j])
                grad_x[base + j] = v
            grad_x[t] = own


@loop_kernel
def cross_entropy_backward_columns(
    grad_x,
    grad,
    stats,
    soft,
    target,
    weight,
    outer,
    n,
    inner,
    ignore,
    smoothing,
    *,
    reduction,
    smooth,
    from_scores=False,
):
    blocks = (inner + BLOCK - 1) // BLOCK
    for task in prange(outer * blocks, n * BLOCK):
        first = task % blocks * BLOCK
        width = minimum(BLOCK, inner - first)
        base = task // blocks * n * inner + first
        place = task // blocks * inner + first
        level = local(stats, BLOCK)
        share = local(stats, BLOCK)
        for c in range(width):
            hit, spread = target_gradient(
                grad, stats, target, weight, place + c, outer * inner, n, ignore, smoothing, reduction=reduction,
                smooth=smooth,
            )  # fmt: skip
            level[c] = hit + spread * stats[3 * outer * inner + 1]
            share[c] = spread
        for k in range(n):
            for c in simd(width):
                v = like(stats, 0)
                if level[c] != 0:
                    v = probability(soft, stats, base + k * inner + c, place + c, from_scores=from_scores) * level[c]
                if smooth:
                    v = v - (share[c] if weight is None else share[c] * weight[k])
                grad_x[base + k * inner + c] = v
        for c in range(width):
            t = target[place + c]
            if t != ignore and 0 <= t < n:
                # level is hit + spread * all weights: what is left without the spread part is the hit.
                cell = base + t * inner + c
                grad_x[cell] = grad_x[cell] - (level[c] - share[c] * stats[3 * outer * inner + 1])


@loop_kernel
def nll(loss, stats, x, target, weight, outer, n, inner, ignore, *, reduction):
    """loss = -weight[t] * x[t], x being log-probabilities."""
    for i in prange(outer * inner, 8):
        t = target[i]
        value = like(x, 0)
        if t != ignore and 0 <= t < n:
            value = -x[i // inner * n * inner + t * inner + i % inner]
            if weight is not None:
                value = value * weight[t]
        stats[3 * i + 2] = value
    reduce_losses(
        loss, stats, target, weight, outer * inner, n, ignore, class_weights(x, weight, n), reduction=reduction
    )


@loop_kernel
def nll_backward(grad_x, grad, stats, target, weight, outer, n, inner, ignore, *, reduction):
    for o in prange(outer, n * inner):
        base = o * n * inner
        for k in simd(n * inner):
            grad_x[base + k] = 0
        for c in range(inner):
            hit, _ = target_gradient(
                grad,
                stats,
                target,
                weight,
                o * inner + c,
                outer * inner,
                n,
                ignore,
                0,
                reduction=reduction,
                smooth=False,
            )
            t = target[o * inner + c]
            if t != ignore and 0 <= t < n:
                grad_x[base + t * inner + c] = -hit
