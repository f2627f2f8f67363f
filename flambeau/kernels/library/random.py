"""Random numbers: the MT19937 engine and PyTorch's ways to fill tensors from it, bit for bit.

`state` is the engine's memory: 624 words, and at ENGINE the position of the next one. `words` is scratch memory for CHUNK
words. Arithmetic must round exactly where it is written: `fma` rounds once, everything else after each operation, and
the float32 logarithm, sine and cosine are Cephes' polynomials (what they must agree with is in `core.random_math`).
"""

from __future__ import annotations

from ...core.dtype import bfloat16, float16, float32, float64
from ...core.generator import SCRATCH_WORDS
from ..loops import (
    bitcast,
    c_cos,
    c_log,
    c_log1p,
    c_sin,
    f32,
    f64,
    fma,
    i32,
    i64,
    log1p,
    loop_kernel,
    minimum,
    pi,
    scalar_function,
    simd,
    sqrt,
    u32,
    where,
)

ENGINE = 624
CHUNK = SCRATCH_WORDS
TO_UNIT_32 = 2.0**-24
TO_UNIT_53 = 2.0**-53
LOW_24 = 0xFFFFFF
LOW_53 = (1 << 53) - 1
DOUBT = 2.0**-45  # far more than two logarithms in float64 differ by


# -- engine -----------------------------------------------------------------------------------------------------------


@scalar_function
def twist(upper, lower, other):
    y = (u32(upper) & u32(0x80000000)) | (u32(lower) & u32(0x7FFFFFFF))
    return u32(other) ^ (y >> u32(1)) ^ ((u32(0) - (y & u32(1))) & u32(0x9908B0DF))


@scalar_function
def regenerate(state):
    """Compute the next 624 words. Each word depends on others at least 227 places away, so neighbours can be computed together."""
    for i in simd(227):
        state[i] = twist(state[i], state[i + 1], state[i + 397])
    for i in simd(227, 623):
        state[i] = twist(state[i], state[i + 1], state[i - 227])
    state[623] = twist(state[623], state[0], state[396])
    state[ENGINE] = 0


@scalar_function
def temper(word):
    y = u32(word)
    y = y ^ (y >> u32(11))
    y = y ^ ((y << u32(7)) & u32(0x9D2C5680))
    y = y ^ ((y << u32(15)) & u32(0xEFC60000))
    return y ^ (y >> u32(18))


@scalar_function
def draw(words, state, count):
    """words[0 ... count - 1] = the next words of the engine."""
    done = 0
    while done < count:
        if state[ENGINE] >= ENGINE:
            regenerate(state)
        first = state[ENGINE]
        ready = minimum(ENGINE - first, count - done)
        for k in simd(ready):
            words[done + k] = temper(state[first + k])
        state[ENGINE] = first + ready
        done = done + ready


@scalar_function
def unit32(word):
    """24 bits as a float32 on [0, 1)."""
    return f32(i32(u32(word) & u32(LOW_24))) * f32(TO_UNIT_32)


@scalar_function
def low_53(words, i):
    """53 bits of two words, the first of which is the high half."""
    return ((i64(words[2 * i]) << 32) | i64(words[2 * i + 1])) & LOW_53


@scalar_function
def unit53(words, i):
    return f64(low_53(words, i)) * TO_UNIT_53


# -- uniform ----------------------------------------------------------------------------------------------------------


@loop_kernel
def uniform(out, state, words, n, low, high, top, *, plain):
    """Uniform on [low, high); `plain`: on [0, 1). A sample that rounding brought to `top`, which is `high` in out's dtype, becomes `low`."""
    if out.dtype is float64:
        for start in range(0, n, CHUNK // 2):
            count = minimum(CHUNK // 2, n - start)
            draw(words, state, 2 * count)
            for i in simd(count):
                wide = unit53(words, i)
                if not plain:
                    wide = fma(wide, f64(high) - f64(low), f64(low))
                    wide = where(wide == f64(top), f64(low), wide)
                out[start + i] = wide
    else:
        for start in range(0, n, CHUNK):
            count = minimum(CHUNK, n - start)
            draw(words, state, count)
            for i in simd(count):
                v = unit32(words[i])
                if not plain:
                    v = fma(v, f32(high) - f32(low), f32(low))
                    if out.dtype is float32:
                        v = where(v == f32(top), f32(low), v)
                out[start + i] = v
            if out.dtype is not float32:
                for i in simd(count):
                    v = out[start + i]
                    out[start + i] = where(v == f32(top), f32(low), v)


# -- normal -----------------------------------------------------------------------------------------------------------


@scalar_function
def log_cephes(x):
    """The natural logarithm of a positive normal float32."""
    bits = bitcast(x, i32) - i32(0x3F3504F3)
    exponent = f32(bits >> i32(23))
    fraction = bitcast((bits & i32(0x7FFFFF)) + i32(0x3F3504F3), f32) - f32(1)
    square = fraction * fraction
    v = fma(fraction, f32(7.0376836292e-2), f32(-1.1514610310e-1))
    v = fma(v, fraction, f32(1.1676998740e-1))
    v = fma(v, fraction, f32(-1.2420140846e-1))
    v = fma(v, fraction, f32(1.4249322787e-1))
    v = fma(v, fraction, f32(-1.6668057665e-1))
    v = fma(v, fraction, f32(2.0000714765e-1))
    v = fma(v, fraction, f32(-2.4999993993e-1))
    v = fma(v, fraction, f32(3.3333331174e-1))
    v = v * fraction
    v = fma(v, square, exponent * f32(-2.12194440e-4))
    v = v - square * f32(0.5)
    v = v + fraction
    return fma(exponent, f32(0.693359375), v)


@scalar_function
def sincos_cephes(x):
    """Sine and cosine of a non-negative float32."""
    octant = (i32(x * f32(1.27323954473516)) + i32(1)) & i32(-2)
    offset = f32(octant)
    angle = fma(offset, f32(-0.78515625), x)
    angle = fma(offset, f32(-2.4187564849853515625e-4), angle)
    angle = fma(offset, f32(-3.77489497744594108e-8), angle)
    square = angle * angle
    c = fma(square, f32(2.443315711809948e-5), f32(-1.388731625493765e-3))
    c = fma(c, square, f32(4.166664568298827e-2))
    c = fma(c * square, square, square * f32(-0.5)) + f32(1)
    s = fma(square, f32(-1.9515295891e-4), f32(8.3321608736e-3))
    s = fma(s, square, f32(-1.6666654611e-1))
    s = fma(s * square, angle, angle)
    # In the second and fourth octant pairs the two change places; the signs follow the octant.
    swap = (octant & i32(2)) != 0
    sine = bitcast(where(swap, c, s), i32) ^ ((octant & i32(4)) << i32(29))
    cosine = bitcast(where(swap, s, c), i32) ^ ((~(octant - i32(2)) & i32(4)) << i32(29))
    return bitcast(sine, f32), bitcast(cosine, f32)


@scalar_function
def block_of_16(out, start, words, base, mean, std):
    """Box and Muller's transform of 16 samples: eight radii, then eight angles."""
    for j in simd(8):
        if out.dtype is float64:
            radius = sqrt(-2.0 * c_log(1.0 - unit53(words, base + j)))
            angle = 2.0 * pi * unit53(words, base + j + 8)
            out[start + j] = fma(radius * c_cos(angle), f64(std), f64(mean))
            out[start + j + 8] = fma(radius * c_sin(angle), f64(std), f64(mean))
        else:
            r = sqrt(f32(-2) * log_cephes(f32(1) - unit32(words[base + j])))
            sine, cosine = sincos_cephes(unit32(words[base + j + 8]) * f32(2 * pi))
            out[start + j] = fma(r * cosine, f32(std), f32(mean))
            out[start + j + 8] = fma(r * sine, f32(std), f32(mean))


@loop_kernel
def normal(out, state, words, n, mean, std):
    """Normal samples for n >= 16 elements, by blocks of 16; a ragged end redoes the last 16."""
    per_sample = 2 if out.dtype is float64 else 1
    whole = n // 16 * 16
    step = CHUNK // per_sample
    for start in range(0, whole, step):
        count = minimum(step, whole - start)
        draw(words, state, per_sample * count)
        for b in range(count // 16):
            block_of_16(out, start + 16 * b, words, 16 * b, mean, std)
    if whole != n:
        # float32 and float64 fill all n elements before the transform; half-width types go block by block.
        if out.dtype is not float16 and out.dtype is not bfloat16:
            draw(words, state, per_sample * (n - whole))
        draw(words, state, per_sample * 16)
        block_of_16(out, n - 16, words, 0, mean, std)


@loop_kernel
def normal_serial(out, state, words, kept, n, mean, std):
    """Normal samples one after the other, in pairs. kept[0] says whether the second of a pair, kept[1], is waiting."""
    waiting = kept[0]
    spare = kept[1]
    for start in range(0, n, CHUNK // 4):
        count = minimum(CHUNK // 4, n - start)
        used = 0
        # Pairs that are still to be made for this stretch, given one sample that may be waiting.
        pairs = (count - (1 if waiting != 0 else 0) + 1) // 2
        draw(words, state, 4 * pairs)
        for i in range(count):
            v = spare
            if waiting != 0:
                waiting = 0.0
            else:
                angle = 2.0 * pi * unit53(words, used)
                radius = sqrt(-2.0 * c_log1p(-unit53(words, used + 1)))
                used = used + 2
                v = radius * c_cos(angle)
                spare = radius * c_sin(angle)
                waiting = 1.0
            v = fma(v, f64(std), f64(mean))
            out[start + i] = v if out.dtype is float64 else f32(v)
    kept[0] = waiting
    kept[1] = spare


# -- other distributions ----------------------------------------------------------------------------------------------


@loop_kernel
def exponential(out, state, words, n, scale):
    """scale * log(1 - u), scale being -1 / rate, with the C library's logarithm."""
    for start in range(0, n, CHUNK // 2):
        count = minimum(CHUNK // 2, n - start)
        draw(words, state, 2 * count)
        if out.dtype is float64:
            for i in range(count):
                out[start + i] = f64(scale) * c_log1p(-unit53(words, i))
        else:
            # Nearly always our own logarithm, which differs in the last bits, gives the same float32.
            unsure = 0
            for i in simd(count):
                v = f64(scale) * log1p(-unit53(words, i))
                unsure += 0 if f32(v * (1 - DOUBT)) == f32(v * (1 + DOUBT)) else 1
                out[start + i] = f32(v)
            if unsure > 0:
                for i in range(count):
                    v = f64(scale) * log1p(-unit53(words, i))
                    if f32(v * (1 - DOUBT)) != f32(v * (1 + DOUBT)):
                        out[start + i] = f32(f64(scale) * c_log1p(-unit53(words, i)))


@loop_kernel
def bernoulli(out, state, words, n, limit, one):
    """Write `one` where a 53-bit number is below `limit`, else 0."""
    for start in range(0, n, CHUNK // 2):
        count = minimum(CHUNK // 2, n - start)
        draw(words, state, 2 * count)
        for i in simd(count):
            hit = low_53(words, i) < limit
            if out.dtype.category < 2:
                out[start + i] = 1 if hit else 0
            elif out.dtype is float64:
                out[start + i] = where(hit, f64(one), f64(0))
            else:
                out[start + i] = where(hit, f32(one), f32(0))


@loop_kernel
def integers(out, state, words, n, low, span, *, mask):
    """low + word % span for span <= 2**28; `mask`: span is a power of two."""
    share = 1.0 / span
    for start in range(0, n, CHUNK):
        count = minimum(CHUNK, n - start)
        draw(words, state, count)
        for i in simd(count):
            word = i64(words[i])
            if mask:
                rest = word & (span - 1)
            else:
                # The quotient is off by one at most; a float64 division would not vectorise.
                rest = word - i64(f64(word) * share) * span
                rest = where(rest < 0, rest + span, where(rest >= span, rest - span, rest))
            out[start + i] = low + rest


@loop_kernel
def permutation(out, state, words, n):
    """0 ... n - 1, each place swapped with itself or a later one."""
    for i in simd(n):
        out[i] = i
    for start in range(0, n - 1, CHUNK):
        count = minimum(CHUNK, n - 1 - start)
        draw(words, state, count)
        for k in range(count):
            i = start + k
            other = i + i64(words[k]) % (n - i)
            v = out[i]
            out[i] = out[other]
            out[other] = v
