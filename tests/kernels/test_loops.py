"""Loop kernels mean the same compiled and interpreted, and say what is wrong with what they cannot mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau.backends.cpu  # noqa: F401 - chooses the compiler
from flambeau.core import dtype as dt
from flambeau.core.dtype import float32, float64, int64
from flambeau.kernels import ir
from flambeau.kernels.loops import (
    KernelError,
    abs_,
    bitcast,
    exp,
    f32,
    f64,
    floor,
    i32,
    i64,
    inf,
    isnan,
    like,
    local,
    log,
    loop_kernel,
    maximum,
    minimum,
    nan,
    prange,
    scalar_function,
    simd,
    sqrt,
    u8,
    u32,
    u64,
    unroll,
    where,
)

FACTOR = 3
HALF = 0.5


def both(kernel: Any, *args, rtol: float = 1e-6, **constants) -> list[np.ndarray]:
    """Run compiled and interpreted on copies; they must agree. Returns the compiled arrays."""
    native = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    slow = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    kernel(*native, **constants)
    kernel.interpret(*slow, **constants)
    for got, expected in zip(native, slow):
        if isinstance(got, np.ndarray):
            np.testing.assert_allclose(got, expected, rtol=rtol, atol=0)
    return [a for a in native if isinstance(a, np.ndarray)]


@loop_kernel
def softmax_rows(out, x, rows, n):
    for i in prange(rows, n):
        base = i * n
        top = like(x, -inf)
        for j in range(n):
            top = maximum(top, x[base + j])
        total = like(x, 0)
        for j in range(n):
            e = exp(x[base + j] - top)
            out[base + j] = e
            total += e
        for j in range(n):
            out[base + j] = out[base + j] / total


@pytest.mark.parametrize("kind", ["f4", "f8", "f2"])
def test_softmax_example(kind):
    x = np.random.default_rng(0).normal(size=(5, 37)).astype(kind)
    out, _ = both(softmax_rows, np.empty_like(x), x, *x.shape, rtol={"f2": 2e-3, "f4": 2e-6, "f8": 1e-13}[kind])
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol={"f2": 2e-3, "f4": 3e-6, "f8": 1e-13}[kind])


def test_large_rows_run_on_threads_and_agree():
    x = np.random.default_rng(0).normal(size=(300, 1024)).astype("f4")
    out = np.empty_like(x)
    softmax_rows(out, x, *x.shape)
    e = np.exp(x.astype("f8") - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_sums_may_be_reassociated_and_running_maxima_too():
    kernel = softmax_rows.lower(float32, float32, int, int)
    rows = kernel.body[0]
    assert isinstance(rows, ir.For) and rows.parallel and rows.cost is not None
    assigns = [s for loop in rows.body if isinstance(loop, ir.For) for s in loop.body if isinstance(s, ir.Assign)]
    assert {a.name: a.reassociate for a in assigns} == {"top": True, "e": False, "total": True}


@loop_kernel
def control_flow(out, x, n):
    for i in range(n):
        v = x[i]
        if v < 0:
            out[i] = -v
            continue
        elif v > 10:
            out[i] = 10
        else:
            k = 0
            while k * k < v:
                k += 1
                if k == 3:
                    break
            out[i] = k
    a, b = 1, 2
    for _ in range(3):
        a, b = b, a + b
    out[n] = a
    out[n + 1] = b
    for i in range(n - 1, -1, -2):
        out[n + 2] = out[n + 2] * 2 + i
    for i in range(1, n, 3):
        out[n + 3] += i


def test_control_flow():
    x = np.array([-3, 0, 1, 4, 5, 20, 9.5], dtype="f8")
    both(control_flow, np.zeros(11), x, 7)


@loop_kernel
def insertion_sort(x, n):
    for i in range(1, n):
        v = x[i]
        j = i - 1
        while j >= 0 and x[j] > v:  # x[-1] must not be read
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = v


@pytest.mark.parametrize("kind", ["i4", "u1", "f4", "i8", "f8", "i2"])
def test_short_circuit_loads_only_what_python_would(kind):
    x = np.random.default_rng(1).integers(0, 100, 40).astype(kind)
    (out,) = both(insertion_sort, x, 40)
    np.testing.assert_array_equal(out, np.sort(x))


@loop_kernel
def conditional(out, x, index, n):
    for i in range(n):
        j = index[i]
        out[i] = x[j] if 0 <= j < n else like(x, -1)
        out[n + i] = x[i] if j > 2 or x[i] > 0 else HALF
        out[2 * n + i] = x[0] if not (j > 1 and (i == 0 or x[j] > 0)) else FACTOR


def test_conditional_expressions_do_not_load_the_other_branch():
    x = np.array([1, -2, 3, -4], dtype="f4")
    both(conditional, np.zeros(12, "f4"), x, np.array([3, -7, 1, 0]), 4)
    with pytest.raises(IndexError, match="out of bounds of 'x'"):
        both(conditional, np.zeros(12, "f4"), x, np.array([3, -7, 2, 9]), 4)


def test_where_is_emitted_when_nothing_is_loaded():
    @loop_kernel
    def clamp(out, x, n):
        for i in range(n):
            v = x[i]
            out[i] = v if v > 0 else 0.0

    body = clamp.lower(float32, float32, int).body[0].body
    assert [type(s) for s in body] == [ir.Assign, ir.Store] and body[1].value.op == "where"


@loop_kernel
def with_options(out, x, weight, n, *, log_result=False, mode="plain", power=1):
    for i in range(n):
        v = x[i]
        if weight is not None:
            v = v * weight[i]
        if log_result and mode != "plain":
            v = log(v)
        for _ in unroll(power - 1):
            v = v * x[i]
        out[i] = v


def test_constants_and_absent_buffers_choose_code():
    x = np.array([1, 2, 3], dtype="f8")
    out, *_ = both(with_options, np.empty(3), x, x * 2, 3, log_result=True, mode="fast")
    np.testing.assert_allclose(out, np.log(2 * x * x))
    out, *_ = both(with_options, np.empty(3), x, None, 3, power=3)
    np.testing.assert_allclose(out, x**3)
    plain = with_options.lower(float32, float32, None, int)
    assert [p.name for p in plain.params] == ["out", "x", "n"]
    assert not [s for s in plain.body[0].body if isinstance(s, ir.If)]


def test_constants_that_are_equal_but_not_the_same_are_told_apart():
    @loop_kernel
    def fill(out, *, value):
        out[0] = value / 2 if value is not True else 7

    out = np.zeros(1)
    for value, expected in [(1, 0.5), (True, 7), (1.0, 0.5)]:
        fill(out, value=value)
        assert out[0] == expected


@scalar_function
def cube_root(x):
    if x == 0:
        return x
    guess = abs_(x)
    for _ in range(60):
        following = (2 * guess + abs_(x) / (guess * guess)) / 3
        if following == guess:
            return where(x < 0, -guess, guess)
        guess = following
    return where(x < 0, -guess, guess)


@scalar_function
def low_and_high(a, b):
    if a < b:
        return a, b
    return b, a


@scalar_function
def swap(x, i, j):
    held = x[i]
    x[i] = x[j]
    x[j] = held


@loop_kernel
def uses_functions(out, x, n, *, function):
    for i in range(n):
        low, high = low_and_high(x[i], x[n - 1 - i])
        out[i] = function(low) + high
    swap(out, 0, n - 1)


def test_scalar_functions_are_inlined():
    x = np.array([-8, 1, 27, 0, 2.5])
    out, _ = both(uses_functions, np.empty(5), x, 5, function=cube_root)
    low, high = np.minimum(x, x[::-1]), np.maximum(x, x[::-1])
    expected = np.cbrt(low) + high
    expected[[0, 4]] = expected[[4, 0]]
    np.testing.assert_allclose(out, expected)
    both(uses_functions, np.empty(5), x, 5, function=with_defaults)


@scalar_function
def with_defaults(x, scale=2, *, shift=1.5):
    while x > 3:
        x /= scale
    return x + shift


def test_scalar_functions_serve_formulas():
    from flambeau.expr import arg, pullback

    x = arg(0)
    node = cube_root(x * 2)
    assert node.op == "call" and node.args[0] is cube_root
    names, body, result = cube_root.inline((float32,))
    assert names == ["x"] and body and result.op == "var"
    with pytest.raises(NotImplementedError, match="derivative of 'cube_root'"):
        pullback(node, arg(1), (x,))

    @cube_root.derivative
    def _(g, y, a):
        return g / (3 * y * y)

    (gradient,) = pullback(node, arg(1), (x,))
    assert "cube_root" in repr(gradient)
    np.testing.assert_allclose(cube_root.numpy(np.array([8.0, -27.0])), [2, -3])


@loop_kernel
def numbers(out, whole, f, d, b, h, n, scale):
    s = scale * 2  # weak: takes the dtype of what it meets
    ratio = n / 3
    out[0] = f[0] * s + ratio
    out[1] = d[0] * s + ratio
    out[2] = b[0] + b[1]
    out[3] = h[0] + h[1]
    out[4] = n // 4 * 10 + n % 4
    out[5] = -n // 4
    out[6] = -n % 4
    out[7] = f[0] ** 2 + d[0] ** 3
    out[8] = min(n, 3, 2) + max(f[0], 1) + abs(-n)
    out[9] = int(f[0] * 10)
    out[10] = float(n) / 7
    out[11] = u8(n + 300)
    out[12] = u32(4294967295) + 2
    out[13] = i32(n << 30) >> 3
    out[14] = bool(n) + (n > 3) * 2
    out[15] = floor(d[0]) + sqrt(n)
    out[16] = f64(f[0]) / 3
    out[17] = f32(d[0]) / 3
    whole[0] = bitcast(f32(1), i32)
    whole[1] = ~n & 0xFF | 0x100 ^ 3
    whole[2] = i64(u64(1) << 40 >> 3)
    q, r = divmod(n, 3)
    whole[3] = q * 10 + r
    whole[4] = 1 if f[0] < d[0] <= 100 and not b[0] else 2


def test_numbers_mean_what_they_mean_in_python():
    both(
        numbers, np.zeros(20), np.zeros(8, "i8"), np.array([1.7], "f4"), np.array([-2.3]), np.array([True, True]),
        np.array([200, 100], "u1"), 10, 0.1, rtol=1e-15,
    )  # fmt: skip


@loop_kernel
def local_arrays(out, x, n):
    for i in prange(n, 8):
        window = local(x, 8)
        for k in range(8):
            window[k] = x[i * 8 + 7 - k]
        counts = local(i32, 4)
        for k in unroll(4):
            counts[k] = 0
        for k in range(8):
            counts[int(abs_(window[k])) % 4] += 1
        for k in unroll(0, 4):
            out[i * 4 + k] = counts[k] + window[k]


def test_local_arrays():
    both(local_arrays, np.zeros((5, 4), "f4"), np.random.default_rng(2).normal(size=(5, 8)).astype("f4") * 3, 5)


def test_bfloat16_computes_in_float32():
    class Raw:
        shape, _strides = (4,), (1,)

        def __init__(self, bits):
            self.bits, self.dtype = bits, dt.bfloat16

        def data_ptr(self):
            return self.bits.ctypes.data

    @loop_kernel
    def double(out, x, n):
        for i in range(n):
            out[i] = x[i] * 1.01

    values = np.array([1.0, -2.5, np.inf, np.nan], "f4")
    source = Raw((values.view("u4") >> 16).astype("u2"))
    native, slow = Raw(np.zeros(4, "u2")), Raw(np.zeros(4, "u2"))
    double(native, source, 4)
    double.interpret(slow, source, 4)
    back = (native.bits.astype("u4") << 16).view("f4")
    np.testing.assert_allclose(back, values * 1.01, rtol=4e-3)
    np.testing.assert_array_equal(native.bits[:3], slow.bits[:3])


def test_complex_operands_are_interpreted():
    @loop_kernel
    def running_product(out, x, n):
        total = like(x, 1)
        for i in range(n):
            total = total * x[i]
            out[i] = total

    x = np.array([1 + 2j, 3j, -1], "c8")
    out = np.empty_like(x)
    running_product(out, x, 3)
    np.testing.assert_allclose(out, np.cumprod(x))


def test_simd_loops_promise_independence():
    @loop_kernel
    def scatter(out, index, n):
        for i in simd(n):
            out[index[i]] = i

    assert scatter.lower(float32, int64, int).body[0].independent
    both(scatter, np.zeros(5), np.array([4, 2, 0, 1, 3]), 5)


def test_min_and_max_propagate_nan():
    @loop_kernel
    def extremes(out, x):
        out[0] = min(x[0], x[1])
        out[1] = max(x[1], x[0])
        out[2] = minimum(x[0], 2)
        out[3] = isnan(x[1]) and not isnan(x[0])

    both(extremes, np.zeros(4), np.array([1.0, nan]))


def test_default_operands_and_early_return():
    @loop_kernel
    def maybe(out, n, weight=None):
        if n > 3:
            return
        out[0] = 1 if weight is None else weight[0]

    assert both(maybe, np.zeros(1), 5)[0][0] == 0
    assert both(maybe, np.zeros(1), 2)[0][0] == 1
    assert both(maybe, np.zeros(1), 2, np.array([9.0]))[0][0] == 9


def test_endless_loops_with_break_define_what_comes_before():
    @loop_kernel
    def collatz(out, start):
        n = start
        steps = 0
        while True:
            if n == 1:
                break
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        out[0] = steps

    assert both(collatz, np.zeros(1, "i8"), 27)[0][0] == 111


@scalar_function
def first_negative(x, *, size):
    for k in unroll(size):
        if x[k] < 0:
            return k
    return -1


def test_names_keep_pythons_meaning():
    out, _ = both(shadows, np.zeros(8), np.array([2.0, -3, 1]), 4)
    assert out.tolist() == [42, 3, 1, 0, 0, 1, 0, 0]


@loop_kernel
def shadows(out, x, n):
    pair = (n, x[0])
    n = 1
    out[0] = pair[0] * 10 + pair[1]
    i = 7
    for i in range(5):
        if i == 3:
            break
    out[1] = i
    for p in prange(n):
        out[2 + p] = first_negative(x, size=3)
    for a in unroll(2):
        for k in unroll(2):
            if x[k] > 0:
                out[3 + a * 2 + k] = a + k


# --- errors ----------------------------------------------------------------------------------------------------------


def bad_name(out, n):
    out[0] = missing  # noqa: F821


def bad_type_change(out, x, n):
    total = 0
    for i in range(n):
        total = total + x[i]


def bad_weak_sum(out, x, n):
    total = 0.0
    for i in range(n):
        total += x[i]


def bad_maybe_undefined(out, n):
    if n > 2:
        v = 1
    out[0] = v


def bad_loop_variable(out, n):
    for i in range(n):
        out[i] = 0
    out[i] = 1


def bad_parallel_write(out, n):
    total = 0
    for i in prange(n):
        total += i


def bad_break(out, n):
    for _ in prange(n):
        break


def bad_tuple_index(out, n):
    out[0, n] = 1


def bad_float_index(out, x, n):
    out[x[0]] = 1


def bad_store(out, x, n):
    for i in range(n):
        n_out = x[i] > 0
        n_out = x[i]  # noqa: F841


def bad_call(out, n):
    out[0] = print(n)


def bad_statement(out, n):
    with out:
        pass


def bad_iteration(out, x, n):
    for v in x:
        out[0] = v


def bad_unrolled_break(out, n):
    for k in unroll(3):
        if n > k:
            break


def bad_return(out, n):
    return n


@pytest.mark.parametrize(
    "function, message",
    [
        (bad_name, "undefined name 'missing'"),
        (bad_type_change, "'total' is int64 since its first assignment and cannot become float32"),
        (bad_weak_sum, r"total = like\(buffer, 0\)"),
        (bad_maybe_undefined, "'v' may not have a value here"),
        (bad_loop_variable, "undefined name 'i'"),
        (bad_parallel_write, "'total' belongs to the code around this parallel loop"),
        (bad_break, "'break' cannot leave a parallel loop"),
        (bad_tuple_index, "indexed by one integer"),
        (bad_float_index, "an index is an integer"),
        (bad_store, "'n_out' is bool since its first assignment"),
        (bad_call, "cannot be called in a kernel"),
        (bad_statement, "'With' statements are not part of the kernel language"),
        (bad_iteration, "loops run over range"),
        (bad_unrolled_break, "an unrolled loop has no 'break'"),
        (bad_return, "a kernel returns nothing"),
    ],
)
def test_errors_name_file_line_and_cause(function, message):
    kernel = loop_kernel(function)
    kinds = (
        [float32, float32, int][: len(kernel.kernel.positional) - 1]
        if len(kernel.kernel.positional) == 3
        else [float32]
    )
    with pytest.raises(KernelError, match=message) as caught:
        kernel.lower(*kinds, int)
    text = str(caught.value)
    line = int(text.split("test_loops.py:")[1].split(":")[0])
    first = function.__code__.co_firstlineno
    assert first <= line <= first + 6


def test_calls_with_wrong_operands_are_refused():
    with pytest.raises(TypeError, match="missing 2 required positional arguments"):
        softmax_rows(np.zeros(3), np.zeros(3))
    with pytest.raises(TypeError, match="'x' is str"):
        softmax_rows(np.zeros(3), "x", 1, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        softmax_rows(np.zeros(3), np.zeros(3), 1, 3, log=True)


def test_interpreter_checks_every_index():
    with pytest.raises(IndexError, match="index 6 is out of bounds of 'x', which has 6 elements"):
        softmax_rows.interpret(np.zeros(9), np.zeros(6), 3, 3)


# --- identity --------------------------------------------------------------------------------------------------------


def _kernel_with(constant):
    def scaled(out):
        out[0] = constant

    return loop_kernel(scaled)


def test_closures_with_other_constants_are_other_kernels():
    out = np.zeros(1)
    for value in (1.5, 2.5, 3):
        _kernel_with(value)(out)
        assert out[0] == value


def test_fingerprints_see_constants_in_modules_and_defaults():
    import types

    from flambeau.kernels.scalar_function import fingerprint

    settings = types.ModuleType("settings")

    def scaled(x, *, factor=cube_root):
        return x * settings.FACTOR

    settings.FACTOR = 2
    before = fingerprint(scaled)
    assert fingerprint(scaled) == before
    settings.FACTOR = 3
    changed = fingerprint(scaled)
    scaled.__kwdefaults__["factor"] = with_defaults
    assert len({before, changed, fingerprint(scaled)}) == 3


def test_warm_start_reads_no_source(monkeypatch, tmp_path):
    from flambeau.backends.cpu import jit
    from flambeau.kernels import loops_frontend

    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))

    def fresh():
        @loop_kernel
        def triple(out):
            out[0] = out[0] * FACTOR

        return triple

    out = np.ones(1)
    fresh()(out)
    monkeypatch.setattr(jit, "_functions", {})

    def unreadable(function):
        raise AssertionError("the source was read")

    monkeypatch.setattr(loops_frontend, "parse", unreadable)
    fresh()(out)
    assert out[0] == 9


def test_source_that_changed_after_import_is_refused(tmp_path):
    import importlib.util

    file = tmp_path / "edited_kernels.py"
    text = "from flambeau.kernels.loops import loop_kernel\n\n\n@loop_kernel\ndef fill(out):\n    out[0] = {}\n"
    file.write_text(text.format(1))
    spec = importlib.util.spec_from_file_location("edited_kernels", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text(text.format("22"))
    with pytest.raises(KernelError, match="has changed since fill was imported"):
        module.fill.lower(float32)


def test_float64_scalar_does_not_widen_float32():
    @loop_kernel
    def shift(out, x, eps):
        out[0] = x[0] + eps

    store = shift.lower(float32, float32, float).body[0]
    assert repr(store.value) == "(load(x, 0) + cast(var(eps, float64), float32))"
    assert repr(shift.lower(float64, float64, float).body[0].value) == "(load(x, 0) + var(eps, float64))"
