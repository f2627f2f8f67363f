"""Derivatives of gamma and beta samples with respect to their parameters, by power series.

Both distribution functions are the density times a series of positive terms, whose derivative in the parameter has the
same terms with a factor that changes from each to the next by a fraction. Where a series would take too many terms, or
where its parts would cancel, `doubtful` is set and the caller uses quadrature.
"""

from __future__ import annotations

from ..loops import digamma, f64, log, loop_kernel, prange, sqrt

MOST_TERMS = 1000
ENOUGH = 2.0**-54


@loop_kernel
def gamma_series(out, doubtful, alpha, x, n):
    """d x / d alpha = x * sum of t_k (digamma(alpha + k + 1) - log x), t_k = x**k / (alpha (alpha + 1) ... (alpha + k))."""
    for i in prange(n, 100):
        a = f64(alpha[i])
        v = f64(x[i])
        # Far above the mean the sum is a small difference of large terms; large parameters take too many.
        fits = a > 0 and v > 0 and a < 1000 and v < a + 4 * sqrt(a) + 8
        doubtful[i] = 0 if fits else 1
        if fits:
            term = 1 / a
            factor = digamma(a + 1) - log(v)
            total = term * factor
            k = a + 1
            left = MOST_TERMS
            while left > 0:
                share = 1 / k
                term = term * v * share
                factor = factor + share
                step = term * factor
                total = total + step
                k = k + 1
                left = left - 1
                # Terms fall at least geometrically from here on.
                if k > v and factor > 0 and step < ENOUGH * total:
                    left = -1
            doubtful[i] = 0 if left < 0 else 1
            out[i] = v * total


@loop_kernel
def beta_series(out, doubtful, x, alpha, sum_of_both, n):
    """(d x / d alpha) / (1 - x) for a beta variable x with parameters alpha and sum_of_both - alpha, by the series of the
    distribution function around the nearer end."""
    for i in prange(n, 200):
        a = f64(alpha[i])
        s = f64(sum_of_both[i])
        b = s - a
        v = f64(x[i])
        fits = a > 0 and b > 0 and v > 0 and v < 1
        doubtful[i] = 0 if fits else 1
        if fits:
            below = v * s <= a
            near = v if below else 1 - v
            p = a if below else b
            factor = digamma(a + 1) - digamma(s) - log(v) if below else log(v) - digamma(a) + digamma(s)
            term = f64(1)
            total = factor
            k = f64(0)
            left = MOST_TERMS
            while left > 0:
                above = 1 / (s + k)
                under = 1 / (p + 1 + k)
                ratio = near * (s + k) * under
                term = term * ratio
                factor = factor + (under - above if below else above)
                step = term * factor
                total = total + step
                k = k + 1
                left = left - 1
                if ratio < 1 and abs(step) < ENOUGH * abs(total) * (1 - ratio):
                    left = -1
            doubtful[i] = 0 if left < 0 else 1
            out[i] = v / p * total
