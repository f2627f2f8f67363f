"""Fourier transforms of many lines at a time.

LANES lines are read into planes of real and imaginary parts with the lines innermost, transformed there by Stockham's
algorithm (each pass leaves its results in order, so nothing is ever permuted by bits), and written out. Every inner loop
runs over whole vectors whatever the length of a line.

All buffers hold real numbers; a complex number is two of them. `in_lines` and `out_lines` say where each line starts and
the steps how far apart its elements are, counted in elements of the line (real or complex).
"""

from __future__ import annotations

from ..loops import like, loop_kernel, minimum, prange, scalar_function, simd, unroll

LANES = 16
TILE = 8  # elements of each line that are turned over at a time: they stay in the first-level cache


@scalar_function
def radix2(work, table, at, source, target, plane, m, s):
    for p in range(m):
        wr, wi = table[at + 2 * p], table[at + 2 * p + 1]
        a = source + s * p
        y = target + 2 * s * p
        for q in simd(s):
            ar, ai = work[a + q], work[a + q + plane]
            br, bi = work[a + s * m + q], work[a + s * m + q + plane]
            work[y + q], work[y + q + plane] = ar + br, ai + bi
            dr, di = ar - br, ai - bi
            work[y + s + q] = dr * wr - di * wi
            work[y + s + q + plane] = dr * wi + di * wr


@scalar_function
def radix3(work, table, at, source, target, plane, m, s):
    for p in range(m):
        w = at + 4 * p
        ur, ui, vr, vi = table[w], table[w + 1], table[w + 2], table[w + 3]
        a = source + s * p
        y = target + 3 * s * p
        for q in simd(s):
            ar, ai = work[a + q], work[a + q + plane]
            br, bi = work[a + s * m + q], work[a + s * m + q + plane]
            cr, ci = work[a + 2 * s * m + q], work[a + 2 * s * m + q + plane]
            tr, ti = br + cr, bi + ci
            er, ei = ar - 0.5 * tr, ai - 0.5 * ti
            fr, fi = 0.8660254037844386 * (bi - ci), 0.8660254037844386 * (cr - br)
            work[y + q], work[y + q + plane] = ar + tr, ai + ti
            gr, gi = er + fr, ei + fi
            work[y + s + q], work[y + s + q + plane] = gr * ur - gi * ui, gr * ui + gi * ur
            hr, hi = er - fr, ei - fi
            work[y + 2 * s + q], work[y + 2 * s + q + plane] = hr * vr - hi * vi, hr * vi + hi * vr


@scalar_function
def radix4(work, table, at, source, target, plane, m, s):
    for p in range(m):
        w = at + 6 * p
        ur, ui, vr, vi, wr, wi = table[w], table[w + 1], table[w + 2], table[w + 3], table[w + 4], table[w + 5]
        a = source + s * p
        y = target + 4 * s * p
        for q in simd(s):
            ar, ai = work[a + q], work[a + q + plane]
            br, bi = work[a + s * m + q], work[a + s * m + q + plane]
            cr, ci = work[a + 2 * s * m + q], work[a + 2 * s * m + q + plane]
            dr, di = work[a + 3 * s * m + q], work[a + 3 * s * m + q + plane]
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, bi - di, dr - br  # h = -i (b - d)
            work[y + q], work[y + q + plane] = er + gr, ei + gi
            kr, ki = fr + hr, fi + hi
            work[y + s + q], work[y + s + q + plane] = kr * ur - ki * ui, kr * ui + ki * ur
            xr, xi = er - gr, ei - gi
            work[y + 2 * s + q], work[y + 2 * s + q + plane] = xr * vr - xi * vi, xr * vi + xi * vr
            zr, zi = fr - hr, fi - hi
            work[y + 3 * s + q], work[y + 3 * s + q + plane] = zr * wr - zi * wi, zr * wi + zi * wr


SQRT_HALF = 0.7071067811865476


@scalar_function
def put(work, place, plane, re, im, wr, wi):
    work[place] = re * wr - im * wi
    work[place + plane] = re * wi + im * wr


@scalar_function
def radix8(work, table, at, source, target, plane, m, s):
    for p in range(m):
        w = at + 14 * p
        w1r, w1i, w2r, w2i, w3r, w3i = table[w], table[w + 1], table[w + 2], table[w + 3], table[w + 4], table[w + 5]
        w4r, w4i, w5r, w5i, w6r, w6i = (
            table[w + 6],
            table[w + 7],
            table[w + 8],
            table[w + 9],
            table[w + 10],
            table[w + 11],
        )
        w7r, w7i = table[w + 12], table[w + 13]
        a = source + s * p
        y = target + 8 * s * p
        d = s * m
        for q in simd(s):
            x0r, x0i, x4r, x4i = work[a + q], work[a + q + plane], work[a + 4 * d + q], work[a + 4 * d + q + plane]
            x1r, x1i, x5r, x5i = (
                work[a + d + q],
                work[a + d + q + plane],
                work[a + 5 * d + q],
                work[a + 5 * d + q + plane],
            )
            x2r, x2i, x6r, x6i = (
                work[a + 2 * d + q],
                work[a + 2 * d + q + plane],
                work[a + 6 * d + q],
                work[a + 6 * d + q + plane],
            )
            x3r, x3i, x7r, x7i = (
                work[a + 3 * d + q],
                work[a + 3 * d + q + plane],
                work[a + 7 * d + q],
                work[a + 7 * d + q + plane],
            )
            # sums give the even coefficients
            a0r, a0i, a1r, a1i = x0r + x4r, x0i + x4i, x1r + x5r, x1i + x5i
            a2r, a2i, a3r, a3i = x2r + x6r, x2i + x6i, x3r + x7r, x3i + x7i
            er, ei, fr, fi = a0r + a2r, a0i + a2i, a0r - a2r, a0i - a2i
            gr, gi, hr, hi = a1r + a3r, a1i + a3i, a1i - a3i, a3r - a1r
            work[y + q], work[y + q + plane] = er + gr, ei + gi
            put(work, y + 2 * s + q, plane, fr + hr, fi + hi, w2r, w2i)
            put(work, y + 4 * s + q, plane, er - gr, ei - gi, w4r, w4i)
            put(work, y + 6 * s + q, plane, fr - hr, fi - hi, w6r, w6i)
            # differences, turned by eighths, the odd ones
            b0r, b0i, b2r, b2i = x0r - x4r, x0i - x4i, x2i - x6i, x6r - x2r
            tr, ti, ur, ui = x1r - x5r, x1i - x5i, x3r - x7r, x3i - x7i
            b1r, b1i = (tr + ti) * SQRT_HALF, (ti - tr) * SQRT_HALF
            b3r, b3i = (ui - ur) * SQRT_HALF, -(ur + ui) * SQRT_HALF
            kr, ki, lr, li = b0r + b2r, b0i + b2i, b0r - b2r, b0i - b2i
            nr, ni, vr, vi = b1r + b3r, b1i + b3i, b1i - b3i, b3r - b1r
            put(work, y + s + q, plane, kr + nr, ki + ni, w1r, w1i)
            put(work, y + 3 * s + q, plane, lr + vr, li + vi, w3r, w3i)
            put(work, y + 5 * s + q, plane, kr - nr, ki - ni, w5r, w5i)
            put(work, y + 7 * s + q, plane, lr - vr, li - vi, w7r, w7i)


C1, C2, S1, S2 = 0.30901699437494745, -0.8090169943749475, 0.9510565162951535, 0.5877852522924731


@scalar_function
def radix5(work, table, at, source, target, plane, m, s):
    for p in range(m):
        w = at + 8 * p
        ur, ui, vr, vi = table[w], table[w + 1], table[w + 2], table[w + 3]
        xr, xi, zr, zi = table[w + 4], table[w + 5], table[w + 6], table[w + 7]
        a = source + s * p
        y = target + 5 * s * p
        for q in simd(s):
            ar, ai = work[a + q], work[a + q + plane]
            br, bi = work[a + s * m + q], work[a + s * m + q + plane]
            cr, ci = work[a + 2 * s * m + q], work[a + 2 * s * m + q + plane]
            dr, di = work[a + 3 * s * m + q], work[a + 3 * s * m + q + plane]
            er, ei = work[a + 4 * s * m + q], work[a + 4 * s * m + q + plane]
            pr, pi, qr, qi = br + er, bi + ei, cr + dr, ci + di
            fr, fi, gr, gi = bi - ei, er - br, ci - di, dr - cr  # -i times the differences
            work[y + q], work[y + q + plane] = ar + pr + qr, ai + pi + qi
            hr, hi = ar + C1 * pr + C2 * qr, ai + C1 * pi + C2 * qi
            kr, ki = ar + C2 * pr + C1 * qr, ai + C2 * pi + C1 * qi
            lr, li = S1 * fr + S2 * gr, S1 * fi + S2 * gi
            nr, ni = S2 * fr - S1 * gr, S2 * fi - S1 * gi
            tr, ti = hr + lr, hi + li
            work[y + s + q], work[y + s + q + plane] = tr * ur - ti * ui, tr * ui + ti * ur
            tr, ti = kr + nr, ki + ni
            work[y + 2 * s + q], work[y + 2 * s + q + plane] = tr * vr - ti * vi, tr * vi + ti * vr
            tr, ti = kr - nr, ki - ni
            work[y + 3 * s + q], work[y + 3 * s + q + plane] = tr * xr - ti * xi, tr * xi + ti * xr
            tr, ti = hr - lr, hi - li
            work[y + 4 * s + q], work[y + 4 * s + q + plane] = tr * zr - ti * zi, tr * zi + ti * zr


@scalar_function
def radix_any(work, table, at, source, target, plane, m, s, radix):
    """Transform by an odd radix, by its definition: cosines of sums and sines of differences of elements j and -j, three pairs at a time. The
    roots of the radix follow its other factors in the table."""
    half = radix // 2
    roots = at + 2 * (radix - 1) * m
    d = s * m
    for p in range(m):
        a = source + s * p
        y = target + radix * s * p
        for q in simd(s):
            work[y + q], work[y + q + plane] = work[a + q], work[a + q + plane]
        for j in range(1, half + 1):
            near, far = a + j * d, a + (radix - j) * d
            for q in simd(s):
                br, bi, cr, ci = work[near + q], work[near + q + plane], work[far + q], work[far + q + plane]
                tr, ti = br + cr, bi + ci
                work[near + q], work[near + q + plane] = tr, ti
                work[far + q], work[far + q + plane] = br - cr, bi - ci
                work[y + q], work[y + q + plane] = work[y + q] + tr, work[y + q + plane] + ti
        for k in range(1, half + 1):
            even, odd = y + k * s, y + (radix - k) * s
            for first in range(1, half + 1, 3):
                j1, j2 = minimum(first + 1, half), minimum(first + 2, half)
                t0, t1, t2 = a + first * d, a + j1 * d, a + j2 * d
                u0, u1, u2 = a + (radix - first) * d, a + (radix - j1) * d, a + (radix - j2) * d
                r0, r1, r2 = roots + 2 * (first * k % radix), roots + 2 * (j1 * k % radix), roots + 2 * (j2 * k % radix)
                c0, s0, c1, s1, c2, s2 = table[r0], table[r0 + 1], table[r1], table[r1 + 1], table[r2], table[r2 + 1]
                if first + 1 > half:
                    c1, s1 = like(work, 0), like(work, 0)
                if first + 2 > half:
                    c2, s2 = like(work, 0), like(work, 0)
                for q in simd(s):
                    er = c0 * work[t0 + q] + c1 * work[t1 + q] + c2 * work[t2 + q]
                    ei = c0 * work[t0 + q + plane] + c1 * work[t1 + q + plane] + c2 * work[t2 + q + plane]
                    fr = s0 * work[u0 + q] + s1 * work[u1 + q] + s2 * work[u2 + q]
                    fi = s0 * work[u0 + q + plane] + s1 * work[u1 + q + plane] + s2 * work[u2 + q + plane]
                    if first == 1:
                        work[even + q], work[even + q + plane] = work[a + q] + er, work[a + q + plane] + ei
                        work[odd + q], work[odd + q + plane] = fr, fi
                    else:
                        work[even + q], work[even + q + plane] = work[even + q] + er, work[even + q + plane] + ei
                        work[odd + q], work[odd + q + plane] = work[odd + q] + fr, work[odd + q + plane] + fi
            w, v = at + 2 * ((radix - 1) * p + k - 1), at + 2 * ((radix - 1) * p + radix - k - 1)
            wr, wi, vr, vi = table[w], table[w + 1], table[v], table[v + 1]
            for q in simd(s):
                er, ei, fr, fi = work[even + q], work[even + q + plane], work[odd + q], work[odd + q + plane]
                put(work, even + q, plane, er - fi, ei + fr, wr, wi)  # the sines are those of negative angles
                put(work, odd + q, plane, er + fi, ei - fr, vr, vi)


@scalar_function
def adjacent(lines, first, last):
    """Return whether a whole block of lines starts at neighbouring elements."""
    steps = 0
    for c in range(last - first):
        steps += 1 if lines[first + c + 1] - lines[first + c] == 1 else 0
    return steps == LANES - 1


@scalar_function
def transform(work, table, radices, passes, home, plane, n):
    """Run all passes over the planes at `home`; return where in `work` the results are."""
    source = home
    target = home + 2 * plane
    at = 0
    s = LANES
    left = n
    for k in range(passes):
        radix = radices[k]
        m = left // radix
        if radix == 8:
            radix8(work, table, at, source, target, plane, m, s)
        elif radix == 4:
            radix4(work, table, at, source, target, plane, m, s)
        elif radix == 2:
            radix2(work, table, at, source, target, plane, m, s)
        elif radix == 3:
            radix3(work, table, at, source, target, plane, m, s)
        elif radix == 5:
            radix5(work, table, at, source, target, plane, m, s)
        else:
            radix_any(work, table, at, source, target, plane, m, s, radix)
            at += 2 * radix
        at += 2 * (radix - 1) * m
        s = s * radix
        left = m
        held = source
        source = target
        target = held
    return source


# -- one element between a line and the planes. Tiles of elements are written out instead of looped over: as vectors they
# would be gathered and scattered one by one.


@scalar_function
def read_complex(work, x, place, plane, here, *, inverse):
    work[place] = x[here + (1 if inverse else 0)]
    work[place + plane] = x[here + (0 if inverse else 1)]


@scalar_function
def write_complex(out, work, turns, place, plane, here, turn, scale, *, inverse, turned):
    re = work[place] * scale
    im = work[place + plane] * scale
    if turned:
        tr, ti = turns[turn], turns[turn + 1]
        held = re * tr - im * ti
        im = re * ti + im * tr
        re = held
    out[here + (1 if inverse else 0)] = re
    out[here + (0 if inverse else 1)] = im


@scalar_function
def write_half(out, work, place, mirror, plane, here, there, half, mirrored, *, second):
    """Write a coefficient of the first or second of two real lines, from those of one complex line at j and -j, and, if `mirrored`, its
    conjugate at `there`."""
    ar, ai, br, bi = work[place], work[place + plane], work[mirror], work[mirror + plane]
    re = (ai + bi) * half if second else (ar + br) * half
    im = (br - ar) * half if second else (ai - bi) * half
    out[here] = re
    out[here + 1] = im
    if mirrored:
        out[there] = re
        out[there + 1] = -im


@scalar_function
def write_half_tiles(out, work, lines, done, plane, n, out_step, half, first, last, *, second, full):
    """Write the coefficients of the real lines first..last, all of them if `full`; row n of the planes is row 0 again."""
    coefficients = n // 2 + 1
    tiled = coefficients // TILE * TILE
    for tile in range(0, tiled, TILE):
        for c in range(last - first + 1):
            start = lines[first + c] + tile * out_step
            end = lines[first + c] + (n - tile) * out_step
            place, mirror = done + tile * LANES + c, done + (n - tile) * LANES + c
            for j in unroll(TILE):
                here, there = 2 * (start + j * out_step), 2 * (end - j * out_step)
                mirrored = full and tile + j > 0 and 2 * (tile + j) < n
                write_half(
                    out, work, place + j * LANES, mirror - j * LANES, plane, here, there, half, mirrored, second=second
                )
    for j in range(tiled, coefficients):
        for c in range(last - first + 1):
            place, mirror = done + j * LANES + c, done + (n - j) * LANES + c
            here, there = 2 * (lines[first + c] + j * out_step), 2 * (lines[first + c] + (n - j) * out_step)
            mirrored = full and j > 0 and 2 * j < n
            write_half(out, work, place, mirror, plane, here, there, half, mirrored, second=second)


@scalar_function
def read_halves(work, x, home, plane, c, j, n, one, other, in_step):
    """Read coefficients j and -j of one complex line from those of two real lines, real and imaginary parts exchanged."""
    alone = j == 0 or 2 * j == n  # these are real: their imaginary parts do not count
    ar, ai = x[2 * (one + j * in_step)], x[2 * (one + j * in_step) + 1]
    br, bi = x[2 * (other + j * in_step)], x[2 * (other + j * in_step) + 1]
    if alone:
        ai = like(work, 0)
        bi = like(work, 0)
    place = home + j * LANES + c
    work[place] = ai + br
    work[place + plane] = ar - bi
    if not alone:
        mirror = home + (n - j) * LANES + c
        work[mirror] = br - ai
        work[mirror + plane] = ar + bi


@loop_kernel(may_alias=True)
def transform_lines(
    out, x, out_lines, in_lines, table, radices, passes, turns, work, lines, n, out_step, in_step, scale, parts, period,
    *, inverse=False, turned=False
):  # fmt: skip
    """Transform complex lines. The inverse transform is the transform with real and imaginary parts exchanged on the way in and out. With
    `turned`, element k of line l is multiplied by turns[(l % period) * n + k]: the step between two transforms that make a longer one. `work`
    has room for 4 * n * LANES numbers per part."""
    plane = n * LANES
    whole = n // TILE * TILE
    blocks = (lines + LANES - 1) // LANES
    for part in prange(parts, 8 * n * lines // parts):
        home = part * 4 * plane
        for block in range(part * blocks // parts, (part + 1) * blocks // parts):
            first = block * LANES
            last = minimum(first + LANES, lines) - 1
            if adjacent(in_lines, first, last):
                start = in_lines[first]
                for j in range(n):
                    here = 2 * (start + j * in_step)
                    for c in simd(LANES):
                        read_complex(work, x, home + j * LANES + c, plane, here + 2 * c, inverse=inverse)
            else:
                for tile in range(0, whole, TILE):
                    for c in range(LANES):
                        start = in_lines[minimum(first + c, last)] + tile * in_step
                        place = home + tile * LANES + c
                        for j in unroll(TILE):
                            read_complex(work, x, place + j * LANES, plane, 2 * (start + j * in_step), inverse=inverse)
                for j in range(whole, n):
                    for c in range(LANES):
                        here = 2 * (in_lines[minimum(first + c, last)] + j * in_step)
                        read_complex(work, x, home + j * LANES + c, plane, here, inverse=inverse)
            done = transform(work, table, radices, passes, home, plane, n)
            if not turned and adjacent(out_lines, first, last):
                start = out_lines[first]
                for j in range(n):
                    here = 2 * (start + j * out_step)
                    for c in simd(LANES):
                        place = done + j * LANES + c
                        write_complex(
                            out, work, turns, place, plane, here + 2 * c, 0, scale, inverse=inverse, turned=False
                        )
            else:
                for tile in range(0, whole, TILE):
                    for c in range(last - first + 1):
                        start = out_lines[first + c] + tile * out_step
                        turn = 2 * (((first + c) % period) * n + tile)
                        place = done + tile * LANES + c
                        for j in unroll(TILE):
                            here = 2 * (start + j * out_step)
                            write_complex(
                                out, work, turns, place + j * LANES, plane, here, turn + 2 * j, scale,
                                inverse=inverse, turned=turned,
                            )  # fmt: skip
                for j in range(whole, n):
                    for c in range(last - first + 1):
                        here = 2 * (out_lines[first + c] + j * out_step)
                        turn = 2 * (((first + c) % period) * n + j)
                        write_complex(
                            out, work, turns, done + j * LANES + c, plane, here, turn, scale, inverse=inverse,
                            turned=turned,
                        )  # fmt: skip


@loop_kernel(may_alias=True)
def transform_real_lines(
    out, x, out_lines, in_lines, table, radices, passes, work, lines, n, out_step, in_step, scale, parts, *, full=False
):  # fmt: skip
    """Transform real lines to all their coefficients, or to the n // 2 + 1 that determine the rest. Two lines are transformed as the real and
    imaginary part of one complex line, and separated by symmetry. The planes have one more row than elements."""
    plane = (n + 1) * LANES
    whole = n // TILE * TILE
    half = scale * 0.5
    blocks = (lines + 2 * LANES - 1) // (2 * LANES)
    for part in prange(parts, 5 * n * lines // parts):
        home = part * 4 * plane
        for block in range(part * blocks // parts, (part + 1) * blocks // parts):
            first = block * 2 * LANES
            last = minimum(first + 2 * LANES, lines) - 1
            for tile in range(0, whole, TILE):
                for c in range(LANES):
                    one = in_lines[minimum(first + c, last)] + tile * in_step
                    other = in_lines[minimum(first + LANES + c, last)] + tile * in_step
                    place = home + tile * LANES + c
                    for j in unroll(TILE):
                        work[place + j * LANES] = x[one + j * in_step]
                        work[place + j * LANES + plane] = x[other + j * in_step]
            for j in range(whole, n):
                for c in range(LANES):
                    work[home + j * LANES + c] = x[in_lines[minimum(first + c, last)] + j * in_step]
                    work[home + j * LANES + c + plane] = x[in_lines[minimum(first + LANES + c, last)] + j * in_step]
            done = transform(work, table, radices, passes, home, plane, n)
            for c in simd(LANES):
                work[done + n * LANES + c] = work[done + c]
                work[done + n * LANES + c + plane] = work[done + c + plane]
            middle = minimum(first + LANES, last + 1)
            write_half_tiles(
                out, work, out_lines, done, plane, n, out_step, half, first, middle - 1, second=False, full=full
            )
            write_half_tiles(out, work, out_lines, done, plane, n, out_step, half, middle, last, second=True, full=full)


@loop_kernel(may_alias=True)
def transform_half_lines(
    out, x, out_lines, in_lines, table, radices, passes, work, lines, n, out_step, in_step, scale, parts
):  # fmt: skip
    """Compute the inverse of transform_real_lines: n real numbers from n // 2 + 1 coefficients."""
    plane = n * LANES
    whole = n // TILE * TILE
    blocks = (lines + 2 * LANES - 1) // (2 * LANES)
    for part in prange(parts, 5 * n * lines // parts):
        home = part * 4 * plane
        for block in range(part * blocks // parts, (part + 1) * blocks // parts):
            first = block * 2 * LANES
            last = minimum(first + 2 * LANES, lines) - 1
            for tile in range(0, n // 2 + 1, TILE):
                for c in range(LANES):
                    one, other = in_lines[minimum(first + c, last)], in_lines[minimum(first + LANES + c, last)]
                    for j in range(tile, minimum(tile + TILE, n // 2 + 1)):
                        read_halves(work, x, home, plane, c, j, n, one, other, in_step)
            done = transform(work, table, radices, passes, home, plane, n)
            for c in range(minimum(last - first + 1, LANES)):
                one = out_lines[first + c]
                for j in range(whole, n):
                    out[one + j * out_step] = work[done + j * LANES + c + plane] * scale
            for c in range(LANES, last - first + 1):
                other = out_lines[first + c]
                for j in range(whole, n):
                    out[other + j * out_step] = work[done + j * LANES + c - LANES] * scale
            for tile in range(0, whole, TILE):
                for c in range(minimum(last - first + 1, LANES)):
                    one = out_lines[first + c] + tile * out_step
                    place = done + tile * LANES + c + plane
                    for j in unroll(TILE):
                        out[one + j * out_step] = work[place + j * LANES] * scale
                for c in range(LANES, last - first + 1):
                    other = out_lines[first + c] + tile * out_step
                    place = done + tile * LANES + c - LANES
                    for j in unroll(TILE):
                        out[other + j * out_step] = work[place + j * LANES] * scale
