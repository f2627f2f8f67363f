"""Samplers that take a varying number of draws per element, bit for bit as in `core.random_samplers`, which explains
them: Poisson, binomial, gamma, Dirichlet, multinomial. `state` and `words` are the engine of `random`."""

from __future__ import annotations

from ...core.dtype import float64
from ..loops import (
    abs_,
    c_cos,
    c_log,
    c_log1p,
    c_pow,
    c_sin,
    ceil,
    exp,
    f32,
    f64,
    floor,
    i64,
    lgamma,
    like,
    log,
    loop_kernel,
    maximum,
    minimum,
    nan,
    pi,
    scalar_function,
    simd,
    sqrt,
)
from .random import CHUNK, ENGINE, LOW_53, TO_UNIT_53, draw, regenerate, temper, unit32, unit53

THIRD = 0.3333333432674408  # 1 / 3 and 0.0331 in float32
SQUEEZE = 0.033100001513957977


@scalar_function
def next_unit(state):
    """The next uniform number on [0, 1), of 53 bits; the first of two words is the high half."""
    bits = i64(0)
    for _ in range(2):
        if state[ENGINE] >= ENGINE:
            regenerate(state)
        place = i64(state[ENGINE])
        bits = (bits << 32) | i64(temper(state[place]))
        state[ENGINE] = place + 1
    return f64(bits & LOW_53) * TO_UNIT_53


# -- counts -----------------------------------------------------------------------------------------------------------


@scalar_function
def poisson_small(rate, state):
    limit = exp(-rate)
    product = next_unit(state)
    count = f64(0)
    while product > limit:
        u = next_unit(state)
        product = product * u
        count = count + 1
    return count


@scalar_function
def poisson_large(rate, state):
    log_rate = log(rate)
    b = 0.931 + 2.53 * sqrt(rate)
    a = -0.059 + 0.02483 * b
    log_inverse_alpha = log(1.1239 + 1.1328 / (b - 3.4))
    accept = 0.9277 - 3.6224 / (b - 2.0)
    while True:
        u = next_unit(state)
        v = next_unit(state)
        u = u - 0.5
        us = 0.5 - abs_(u)
        if us > 0:
            k = floor((2.0 * a / us + b) * u + rate + 0.43)
            k = k if abs_(k) < 2.0**63 else f64(-1)
            if us >= 0.07 and v <= accept:
                return k
            if k >= 0 and (us >= 0.013 or v <= us):
                bound = -rate + k * log_rate - lgamma(k + 1.0)
                if c_log(v) + log_inverse_alpha - log(a / (us * us) + b) <= bound:
                    return k


@loop_kernel
def poisson(out, rates, state, n):
    for i in range(n):
        rate = f64(rates[i])
        count = f64(0)
        if rate >= 10:
            count = poisson_large(rate, state)
        elif rate > 0:
            count = poisson_small(rate, state)
        out[i] = count if out.dtype is float64 else f32(count)


@scalar_function
def stirling_tail(k, table):
    if k <= 9:
        return table[i64(k)]
    square = (k + 1.0) * (k + 1.0)
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1.0)


@scalar_function
def binomial_inversion(counts, count, p, state):
    log_failure = f64(like(counts, c_log1p(-f64(p))))
    limit = f64(count)
    trials = f64(0)
    successes = f64(0)
    while True:
        u = next_unit(state)
        waiting = c_log(u) / log_failure
        if waiting > limit:
            return successes
        trials = trials + ceil(waiting)
        if trials > limit:
            return successes
        successes = successes + 1


@scalar_function
def binomial_rejection(count, p, state, table):
    spread = f64(sqrt(count * p * (1 - p)))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * f64(p)
    c = f64(count * p) + 0.5
    accept = 0.92 - 4.2 / b
    odds = f64(p / (1 - p))
    alpha = (2.83 + 5.1 / b) * spread
    m = f64(floor((count + 1) * p))
    n = f64(count)
    while True:
        u = next_unit(state)
        v = next_unit(state)
        u = u - 0.5
        us = 0.5 - abs_(u)
        if us > 0:
            k = floor((2.0 * a / us + b) * u + c)
            if us >= 0.07 and v <= accept:
                return k
            if k >= 0 and k <= n:
                bound = (
                    (m + 0.5) * c_log((m + 1.0) / (odds * (n - m + 1.0)))
                    + (n + 1.0) * c_log((n - m + 1.0) / (n - k + 1.0))
                    + (k + 0.5) * c_log(odds * (n - k + 1.0) / (k + 1.0))
                    + stirling_tail(m, table)
                    + stirling_tail(n - m, table)
                    - stirling_tail(k, table)
                    - stirling_tail(n - k, table)
                )
                if c_log(v * alpha / (a / (us * us) + b)) <= bound:
                    return k


@loop_kernel
def binomial(out, counts, chances, table, state, n):
    """Draw binomial samples. `table`: log(k!) minus Stirling's formula, for k = 0 ... 9."""
    for i in range(n):
        count = counts[i]
        p = chances[i]
        result = f64(nan)
        if count <= 0 or p <= 0:
            result = f64(0)
        elif p >= 1:
            result = f64(count)
        elif p == p and count == count:
            rare = p if p <= 0.5 else 1 - p
            if count * rare >= 10:
                result = binomial_rejection(count, rare, state, table)
            else:
                result = binomial_inversion(counts, count, rare, state)
            if p > 0.5:
                result = f64(count) - result
        out[i] = result if out.dtype is float64 else f32(result)


# -- gamma ------------------------------------------------------------------------------------------------------------


@scalar_function
def next_normal(state, kept):
    """Return the next normal number. kept[0] says whether kept[1] is the unused second number of a pair."""
    if kept[0] != 0:
        kept[0] = 0.0
        return kept[1]
    turn = next_unit(state)
    u = next_unit(state)
    angle = 2.0 * pi * turn
    radius = sqrt(-2.0 * c_log1p(-u))
    kept[0] = 1.0
    kept[1] = radius * c_sin(angle)
    return radius * c_cos(angle)


@scalar_function
def gamma_sample(alpha, state, kept):
    """Draw a gamma sample by Marsaglia and Tsang's method; the parameter has its own precision, the rest is in float64."""
    if alpha == 0:
        return f64(0)
    scale = f64(1)
    a = alpha
    if a < 1:
        u = next_unit(state)
        scale = c_pow(1.0 - u, f64(1 / a))
        a = a + 1
    d = f64(a - THIRD)
    c = 1.0 / sqrt(9.0 * d)
    while True:
        x = next_normal(state, kept)
        y = 1.0 + c * x
        if not (y <= 0):
            v = y * y * y
            u = next_unit(state)
            u = 1.0 - u
            square = x * x
            if u < 1.0 - SQUEEZE * square * square:
                return scale * d * v
            if c_log(u) < 0.5 * square + d * (1.0 - v + c_log(v)):
                return scale * d * v


@loop_kernel
def gamma(out, alpha, state, kept, n, least):
    for i in range(n):
        v = gamma_sample(alpha[i], state, kept)
        out[i] = maximum(v, f64(least)) if out.dtype is float64 else maximum(f32(v), f32(least))


@loop_kernel
def dirichlet(out, alpha, parts, state, kept, rows, k, least, most):
    """Draw a Dirichlet sample, a distribution of k outcomes, per row; `parts` has room for a row in float64."""
    for i in range(rows):
        total = f64(0)
        for j in range(k):
            v = gamma_sample(f64(alpha[i * k + j]), state, kept)
            v = maximum(v, f64(2.2250738585072014e-308))  # never 0 / 0
            parts[j] = v
            total = total + v
        for j in range(k):
            share = parts[j] / total
            if out.dtype is float64:
                out[i * k + j] = minimum(maximum(share, f64(least)), f64(most))
            else:
                out[i * k + j] = minimum(maximum(f32(share), f32(least)), f32(most))


# -- multinomial ------------------------------------------------------------------------------------------------------


@loop_kernel
def multinomial(out, weights, steps, state, words, rows, k, samples):
    """Draw with replacement: the first category whose cumulative share reaches a uniform number. `steps` has room for a
    row in float64; the sums are made in the precision of the weights."""
    for i in range(rows):
        total = like(weights, 0)
        for j in range(k):
            total = total + weights[i * k + j]
        reached = like(weights, 0)
        for j in range(k):
            reached = reached + weights[i * k + j]
            steps[j] = f64(reached / total)
        steps[k - 1] = 1.0
        for start in range(0, samples, CHUNK // 2):
            count = minimum(CHUNK // 2, samples - start)
            draw(words, state, 2 * count)
            for s in range(count):
                u = unit53(words, s)
                low = 0
                high = k
                while low < high:
                    middle = (low + high) // 2
                    if steps[middle] < u:
                        low = middle + 1
                    else:
                        high = middle
                out[i * samples + start + s] = low


@loop_kernel
def race(out, weights, noise, rows, k):
    """Return the index of each row's largest weight / noise, the first of equals; nan counts as largest."""
    for i in range(rows):
        best = like(weights, -1)
        winner = 0
        for j in range(k):
            score = weights[i * k + j] / noise[i * k + j]
            if not (score <= best) and best == best:
                best = score
                winner = j
        out[i] = winner


@loop_kernel
def bernoulli_each(out, chances, state, words, n):
    """Write 1 where a uniform number is below this element's probability, else 0."""
    per_sample = 2 if chances.dtype is float64 else 1
    step = CHUNK // per_sample
    for start in range(0, n, step):
        count = minimum(step, n - start)
        draw(words, state, per_sample * count)
        for i in simd(count):
            u = unit53(words, i) if chances.dtype is float64 else unit32(words[i])
            out[start + i] = 1 if u < chances[start + i] else 0
