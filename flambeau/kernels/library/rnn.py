"""Time steps of recurrent layers, forward and backward: everything between the matrix products.

`pre` is the input's share of the gates and `rec` the hidden state's, biases included. A step works on the first `batch` rows of the state,
which it replaces; the previous state is saved in `before` for the gradient of the weights; buffers that only gradients need may be None. Rows
of one step start at row `first` of the buffers that hold all steps."""

from __future__ import annotations

from ..loops import like, loop_kernel, maximum, prange, sigmoid, simd, tanh

GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}  # by kind of cell, in the order of cuDNN's numbers for the kinds


@loop_kernel
def lstm_step(out, h, c, gates, h_before, c_before, cells, pre, rec, first, batch, n):
    """Compute one LSTM step. Gates are in the order input, forget, cell, output."""
    for b in prange(batch, 16 * n):
        r = b * 4 * n
        g = r + first * 4 * n
        for j in simd(n):
            i = sigmoid(pre[g + j] + rec[r + j])
            f = sigmoid(pre[g + n + j] + rec[r + n + j])
            u = tanh(pre[g + 2 * n + j] + rec[r + 2 * n + j])
            o = sigmoid(pre[g + 3 * n + j] + rec[r + 3 * n + j])
            here = b * n + j
            at = here + first * n
            old = c[here]
            new = f * old + i * u
            c[here] = new
            if gates is not None:
                h_before[at] = h[here]
                c_before[at] = old
                cells[at] = new
                gates[g + j] = i
                gates[g + n + j] = f
                gates[g + 2 * n + j] = u
                gates[g + 3 * n + j] = o
            value = o * tanh(new)
            h[here] = value
            out[at] = value


@loop_kernel
def lstm_step_backward(grads, dc, dout, dh, gates, cells, c_before, first, batch, n):
    """Compute gradients of the gates before their activations; dc is carried to the step before."""
    for b in prange(batch, 16 * n):
        g = (first + b) * 4 * n
        for j in simd(n):
            here = b * n + j
            at = here + first * n
            i = gates[g + j]
            f = gates[g + n + j]
            u = gates[g + 2 * n + j]
            o = gates[g + 3 * n + j]
            t = tanh(cells[at])
            dhidden = dout[at] + dh[here]
            dcell = dc[here] + dhidden * o * (1 - t * t)
            grads[g + j] = dcell * u * i * (1 - i)
            grads[g + n + j] = dcell * c_before[at] * f * (1 - f)
            grads[g + 2 * n + j] = dcell * i * (1 - u * u)
            grads[g + 3 * n + j] = dhidden * t * o * (1 - o)
            dc[here] = dcell * f


@loop_kernel
def gru_step(out, h, gates, h_before, pre, rec, first, batch, n):
    """Compute one GRU step. Gates are in the order reset, update, new; the fourth quarter keeps the hidden state's share of `new`."""
    for b in prange(batch, 16 * n):
        s = b * 3 * n
        g = s + first * 3 * n
        k = (first + b) * 4 * n
        for j in simd(n):
            r = sigmoid(pre[g + j] + rec[s + j])
            z = sigmoid(pre[g + n + j] + rec[s + n + j])
            share = rec[s + 2 * n + j]
            u = tanh(pre[g + 2 * n + j] + r * share)
            here = b * n + j
            at = here + first * n
            old = h[here]
            value = (1 - z) * u + z * old
            if gates is not None:
                h_before[at] = old
                gates[k + j] = r
                gates[k + n + j] = z
                gates[k + 2 * n + j] = u
                gates[k + 3 * n + j] = share
            h[here] = value
            out[at] = value


@loop_kernel
def gru_step_backward(grad_pre, grad_rec, carry, dout, dh, gates, h_before, first, batch, n):
    """Compute gradients of both shares of the gates; `carry` is the gradient that bypasses them to the step before."""
    for b in prange(batch, 16 * n):
        g = (first + b) * 3 * n
        k = (first + b) * 4 * n
        for j in simd(n):
            here = b * n + j
            at = here + first * n
            r = gates[k + j]
            z = gates[k + n + j]
            u = gates[k + 2 * n + j]
            share = gates[k + 3 * n + j]
            d = dout[at] + dh[here]
            du = d * (1 - z) * (1 - u * u)
            dr = du * share * r * (1 - r)
            dz = d * (h_before[at] - u) * z * (1 - z)
            grad_pre[g + j] = dr
            grad_pre[g + n + j] = dz
            grad_pre[g + 2 * n + j] = du
            grad_rec[g + j] = dr
            grad_rec[g + n + j] = dz
            grad_rec[g + 2 * n + j] = du * r
            carry[here] = d * z


@loop_kernel
def plain_step(out, h, h_before, pre, rec, first, batch, n, *, relu=False):
    for b in prange(batch, 4 * n):
        for j in simd(n):
            here = b * n + j
            at = here + first * n
            if h_before is not None:
                h_before[at] = h[here]
            v = pre[at] + rec[here]
            if relu:
                v = maximum(v, like(pre, 0))
            else:
                v = tanh(v)
            h[here] = v
            out[at] = v


@loop_kernel
def plain_step_backward(grads, dout, dh, out, first, batch, n, *, relu=False):
    for b in prange(batch, 4 * n):
        for j in simd(n):
            here = b * n + j
            at = here + first * n
            d = dout[at] + dh[here]
            v = out[at]
            if relu:
                grads[at] = d if v > 0 else like(out, 0)
            else:
                grads[at] = d * (1 - v * v)
