"""Random numbers: PyTorch's bits and PyTorch's generator state after every draw."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from flambeau.core import dtype as dt
from flambeau.core import random_algorithms as ra
from flambeau.core import random_integers as ri
from flambeau.core import random_math as rm
from flambeau.core import random_samplers as rs
from flambeau.core.generator import Generator, default_generator, manual_seed

SIZES = (0, 1, 2, 15, 16, 17, 31, 33, 100_000)
FLOATS = ("float32", "float64", "float16", "bfloat16")


# -- without PyTorch --------------------------------------------------------------------------------------------------


def test_first_words_of_seed_zero():
    g = Generator().manual_seed(0)
    assert g.random32(2).tolist() == [0x8C7F0AAC, 0x97C4AA2F]
    assert [hex(w) for w in g.random64(1)] == ["0xb716a675d821ccc0"]


GOLDEN = {
    "uniform float32": (
        lambda g: ra.uniform(g, 3, dt.float32),
        [0.49625658988952637, 0.7682217955589294, 0.08847743272781372],
    ),
    "uniform float64": (lambda g: ra.uniform(g, 2, dt.float64), [0.9700530018065531, 0.707819864399788]),
    "uniform bfloat16 bits": (lambda g: ra.uniform(g, 3, dt.bfloat16), [16126, 16197, 15797]),
    "normal, three": (
        lambda g: ra.normal(g, 3, dt.float32),
        [1.5409960746765137, -0.293428897857666, -2.1787893772125244],
    ),
    "normal, sixteen": (
        lambda g: ra.normal(g, 16, dt.float32)[:3],
        [-1.1258398294448853, -1.152360200881958, -0.2505785822868347],
    ),
    "normal, seventeen": (
        lambda g: ra.normal(g, 17, dt.float32)[:3],
        [-1.1258398294448853, -1.6959311962127686, 0.5666506290435791],
    ),
    "normal float64": (lambda g: ra.normal(g, 16, dt.float64)[:2], [-2.310411800234176, -0.3732508612577643]),
    "exponential": (lambda g: ra.exponential(g, 2, dt.float32), [3.508326292037964, 1.2303847074508667]),
    "bernoulli": (lambda g: ra.bernoulli(g, 8, dt.int64, 0.5), [0, 0, 1, 0, 0, 0, 1, 1]),
    "randint": (lambda g: ri.random_range(g, 5, dt.int64, 0, 10), [4, 9, 3, 0, 3]),
    "wide randint": (lambda g: ri.random_range(g, 2, dt.int64, 0, 2**40), [741280623151, 506137267392]),
    "randperm": (lambda g: ri.randperm(g, 10), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]),
    "poisson": (
        lambda g: rs.poisson(g, np.arange(0, 40, 8, dtype=np.float32), dt.float32),
        [0.0, 11.0, 14.0, 24.0, 30.0],
    ),
    "multinomial": (lambda g: rs.multinomial(g, np.float32([[1, 2, 3, 4]]), dt.float32, 3)[0], [2, 1, 3]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_values_of_seed_zero(name):
    draw, expected = GOLDEN[name]
    assert draw(Generator().manual_seed(0)).tolist() == expected


@pytest.mark.parametrize(
    ("given", "kept"), [(5, 5), (-1, 2**64 - 1), (-(2**63), 2**63), (2**64 - 1, 2**64 - 1), (2**40 + 1, 2**40 + 1)]
)
def test_seed_is_taken_modulo_two_to_the_64(given, kept):
    assert Generator().manual_seed(given).initial_seed() == kept


@pytest.mark.parametrize("given", [2**64, -(2**63) - 1])
def test_seed_out_of_range_is_refused(given):
    with pytest.raises(ValueError, match="Overflow"):
        Generator().manual_seed(given)


@pytest.mark.parametrize("given", [1.5, True, "1", None])
def test_seed_must_be_an_integer(given):
    with pytest.raises(RuntimeError, match="expected a long"):
        Generator().manual_seed(given)


def test_module_level_seed_takes_what_int_takes():
    assert manual_seed(np.int64(7)) is default_generator
    assert default_generator.initial_seed() == 7


def test_seed_from_entropy_is_reported():
    g = Generator()
    assert g.initial_seed() == 67280421310721
    assert g.seed() == g.initial_seed() != 67280421310721


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g)), Generator.clone_state]
)
@pytest.mark.parametrize("draws", [0, 1, 623, 624, 625])
def test_copies_continue_independently(copied, draws):
    g = Generator().manual_seed(3)
    ra.normal(g, 1, dt.float32)
    g.random32(draws)
    twin = copied(g)
    assert twin.state_bytes() == g.state_bytes()
    expected = ra.normal(g, 3, dt.float64)
    np.testing.assert_array_equal(ra.normal(twin, 3, dt.float64), expected)
    assert twin.initial_seed() == 3


def test_bad_states_are_refused_and_change_nothing():
    g = Generator().manual_seed(1)
    good = g.state_bytes()
    for bad in (good[:-1], bytes(5056), good[:8] + b"\0\0\0\0" + good[12:]):
        with pytest.raises(RuntimeError, match="state"):
            g.set_state_bytes(bad)
        assert g.state_bytes() == good


def test_generator_is_for_the_cpu():
    assert str(Generator("cpu:0").device) == "cpu"
    with pytest.raises(RuntimeError, match="cpu"):
        Generator("cuda")


def test_permutation_methods_agree():
    targets = ri._swap_targets(Generator().manual_seed(5), 6000)
    expected = list(range(6000))
    for place, target in enumerate(targets.tolist()):
        expected[place], expected[target] = expected[target], expected[place]
    assert ri._shuffled_at_once(targets).tolist() == expected
    targets = np.minimum(np.arange(6000) + 1, 5999)  # one chain through all places
    assert ri._shuffled_at_once(targets).tolist() == [*range(1, 6000), 0]


@pytest.mark.parametrize("n", [1, 2, 50, 6000])
def test_permutation_of_a_huge_range_swaps_with_earlier_places(n, monkeypatch):
    monkeypatch.setattr(ri, "COARSE", n)
    expected = []
    for place, word in enumerate(Generator().manual_seed(4).random64(n).tolist()):
        expected.append(place)
        target = word % (place + 1)
        expected[place], expected[target] = expected[target], expected[place]
    g = Generator().manual_seed(4)
    assert ri.randperm(g, n).tolist() == expected
    assert g.random32(1)[0] == Generator().manual_seed(4).random32(2 * n + 1)[-1]


BAD_ARGUMENTS = [
    (lambda g: ra.uniform(g, 3, dt.float32, 1.0, 0.0), RuntimeError, "from=1.0 > to=0.0"),
    (lambda g: ra.uniform(g, 3, dt.float16, 0.0, 1e6), RuntimeError, "out of bounds"),
    (lambda g: ra.uniform(g, 3, dt.float32, -3e38, 3e38), RuntimeError, "to-from"),
    (lambda g: ra.uniform(g, 3, dt.int64), NotImplementedError, "int64"),
    (lambda g: ra.normal(g, 3, dt.float32, 0.0, -1.0), RuntimeError, "std -1"),
    (lambda g: ra.normal(g, 3, dt.int32), NotImplementedError, "int32"),
    (lambda g: ra.log_normal(g, 3, dt.float32, 0.0, 0.0), RuntimeError, "std=0"),
    (lambda g: ra.exponential(g, 3, dt.float32, math.nan), RuntimeError, "lambda=nan"),
    (lambda g: ra.exponential(g, 3, dt.int64), RuntimeError, "continuous"),
    (lambda g: ra.cauchy(g, 3, dt.float32, 0.0, 0.0), RuntimeError, "sigma=0"),
    (lambda g: ra.geometric(g, 3, dt.float32, 1.0), RuntimeError, "p=1"),
    (lambda g: ra.geometric(g, 3, dt.bool_, 0.5), NotImplementedError, "bool"),
    (lambda g: ra.bernoulli(g, 3, dt.float32, 1.5), RuntimeError, "p=1.5"),
    (lambda g: ra.bernoulli_tensor(g, np.float32([0.1, np.nan]), dt.float32, dt.float32), RuntimeError, "in .0, 1."),
    (lambda g: ra.bernoulli_tensor(g, np.array([1, 0]), dt.int64, dt.float32), NotImplementedError, "int64"),
    (lambda g: ra.alpha_dropout_noise(g, 3, dt.float32, -0.1), RuntimeError, "between 0 and 1"),
    (lambda g: ri.random_range(g, 3, dt.int64, 5, 5), RuntimeError, "from=5 >= to=5"),
    (lambda g: ri.random_range(g, 3, dt.uint8, 0, 257), RuntimeError, "to - 1 is out of bounds"),
    (lambda g: ri.random_range(g, 3, dt.int8, -(2**63), None), RuntimeError, "64-bit"),
    (lambda g: ri.randperm(g, -1), RuntimeError, "negative"),
    (lambda g: ri.randperm(g, 257, dt.uint8), RuntimeError, "overflow"),
    (lambda g: ri.randperm(g, 2050, dt.float16), RuntimeError, "greater"),
    (lambda g: rs.poisson(g, np.float32([-1]), dt.float32), RuntimeError, "non-negative"),
    (lambda g: rs.multinomial(g, np.float32([[0, 0]]), dt.float32, 1), RuntimeError, "sum of probabilities"),
    (lambda g: rs.multinomial(g, np.float32([[0, 0]]), dt.float32, 2, True), RuntimeError, "sum of probabilities"),
    (lambda g: rs.multinomial(g, np.float32([[-1, 2]]), dt.float32, 1), RuntimeError, "element < 0"),
    (lambda g: rs.multinomial(g, np.float32([[np.inf, 2]]), dt.float32, 2, True), RuntimeError, "infinity"),
    (lambda g: rs.multinomial(g, np.float32([[1, 2]]), dt.float32, 3), RuntimeError, "without replacement"),
    (lambda g: rs.multinomial(g, np.float32([[1, 2]]), dt.float32, 0), RuntimeError, "n_sample <= 0"),
    (lambda g: rs.rrelu_noise(g, np.float32([1]), dt.float32, 0.5, 0.1), RuntimeError, "Lower bound"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_ARGUMENTS)
def test_bad_arguments_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(Generator())


# -- against PyTorch --------------------------------------------------------------------------------------------------

try:
    import torch
except ImportError:
    torch = None
with_torch = pytest.mark.skipif(
    torch is None or torch.backends.cpu.get_cpu_capability() == "DEFAULT",
    reason="compares with PyTorch on a processor with fused multiply-add",
)


def bits(tensor):
    """A tensor's elements as NumPy holds them here: bfloat16 as uint16."""
    return (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


def assert_same(theirs, ours, generator):
    theirs = bits(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    # Values first, for a readable failure; then the bits, which tell -0.0 from 0.0 and one NaN from another.
    np.testing.assert_array_equal(ours, theirs)
    assert ours.tobytes() == theirs.tobytes()
    assert torch.get_rng_state().numpy().tobytes() == generator.state_bytes()


def seeded(seed=0, kept=False, skip=0):
    """Both generators at the same point; `kept` leaves a normal sample waiting."""
    torch.manual_seed(seed)
    g = Generator().manual_seed(seed)
    if skip:
        torch.rand(skip)
        g.random32(skip)
    if kept:
        torch.randn(1)
        ra.normal(g, 1, dt.float32)
    return g


def names(dtype):
    return getattr(torch, dtype), dt.BY_NAME[dtype]


NORMAL_ARGUMENTS = {
    "normal": (0, 1),
    "normal(0.3, 1.7)": (0.3, 1.7),
    "normal(100, 1e-3)": (100, 1e-3),
    "normal(0.5, 0)": (0.5, 0),
}

FILLS = {
    "uniform": (lambda t: t.uniform_(), lambda g, n, d: ra.uniform(g, n, d)),
    "uniform(-0.1, 0.3)": (lambda t: t.uniform_(-0.1, 0.3), lambda g, n, d: ra.uniform(g, n, d, -0.1, 0.3)),
    "uniform(0, 7)": (lambda t: t.uniform_(0, 7), lambda g, n, d: ra.uniform(g, n, d, 0, 7)),
    "uniform(1, 1.001)": (lambda t: t.uniform_(1, 1.001), lambda g, n, d: ra.uniform(g, n, d, 1, 1.001)),
    "uniform(1000, 1001)": (lambda t: t.uniform_(1000, 1001), lambda g, n, d: ra.uniform(g, n, d, 1000, 1001)),
    "uniform(2, 2)": (lambda t: t.uniform_(2, 2), lambda g, n, d: ra.uniform(g, n, d, 2, 2)),
    "normal": (lambda t: t.normal_(), lambda g, n, d: ra.normal(g, n, d)),
    "normal(0.3, 1.7)": (lambda t: t.normal_(0.3, 1.7), lambda g, n, d: ra.normal(g, n, d, 0.3, 1.7)),
    "normal(100, 1e-3)": (lambda t: t.normal_(100, 1e-3), lambda g, n, d: ra.normal(g, n, d, 100, 1e-3)),
    "normal(0.5, 0)": (lambda t: t.normal_(0.5, 0), lambda g, n, d: ra.normal(g, n, d, 0.5, 0)),
    "log_normal": (lambda t: t.log_normal_(), lambda g, n, d: ra.log_normal(g, n, d)),
    "log_normal(-3, 4)": (lambda t: t.log_normal_(-3, 4), lambda g, n, d: ra.log_normal(g, n, d, -3, 4)),
    "exponential": (lambda t: t.exponential_(), lambda g, n, d: ra.exponential(g, n, d)),
    "exponential(2.5)": (lambda t: t.exponential_(2.5), lambda g, n, d: ra.exponential(g, n, d, 2.5)),
    "cauchy": (lambda t: t.cauchy_(), lambda g, n, d: ra.cauchy(g, n, d)),
    "cauchy(0.3, 1.7)": (lambda t: t.cauchy_(0.3, 1.7), lambda g, n, d: ra.cauchy(g, n, d, 0.3, 1.7)),
    "geometric(0.3)": (lambda t: t.geometric_(0.3), lambda g, n, d: ra.geometric(g, n, d, 0.3)),
    "geometric(0.5)": (lambda t: t.geometric_(0.5), lambda g, n, d: ra.geometric(g, n, d, 0.5)),
    "bernoulli(0.3)": (lambda t: t.bernoulli_(0.3), lambda g, n, d: ra.bernoulli(g, n, d, 0.3)),
    "random()": (lambda t: t.random_(), lambda g, n, d: ri.random_full(g, n, d)),
    "random(100)": (lambda t: t.random_(100), lambda g, n, d: ri.random_range(g, n, d, 0, 100)),
    "random(3, None)": (lambda t: t.random_(3, None), lambda g, n, d: ri.random_range(g, n, d, 3, None)),
}


@with_torch
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILLS)
def test_fill_of_a_contiguous_tensor(name, dtype):
    theirs, ours = FILLS[name]
    torch_dtype, own_dtype = names(dtype)
    for n in SIZES:
        for kept in (False, True):
            g = seeded(n, kept)
            assert_same(theirs(torch.empty(n, dtype=torch_dtype)), ours(g, n, own_dtype), g)


@with_torch
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FILLS)
def test_fill_of_a_transposed_tensor_is_in_memory_order(name, dtype):
    theirs, ours = FILLS[name]
    torch_dtype, own_dtype = names(dtype)
    for shape in ((2, 3), (50, 170)):
        g = seeded(1, kept=True)
        tensor = theirs(torch.empty(shape, dtype=torch_dtype).t())
        n = tensor.numel()
        if name in NORMAL_ARGUMENTS:
            flat = ra.normal(g, n, own_dtype, *NORMAL_ARGUMENTS[name], contiguous=False)
        else:
            flat = ours(g, n, own_dtype)
        assert_same(tensor, ra.place(flat, tensor.shape, tensor.stride()), g)


@with_torch
@pytest.mark.parametrize("name", [n for n in FILLS if n.startswith(("geometric", "bernoulli", "random"))])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool", "uint16", "uint32", "uint64"])
def test_fill_of_integers(name, dtype):
    theirs, ours = FILLS[name]
    torch_dtype, own_dtype = names(dtype)
    for n in SIZES[1:]:
        g = seeded(n)
        try:
            expected = theirs(torch.empty(n, dtype=torch_dtype))
        except (RuntimeError, NotImplementedError) as error:
            with pytest.raises(type(error)):
                ours(g, n, own_dtype)
        else:
            assert_same(expected, ours(g, n, own_dtype), g)


RANGES = [
    (-5, None), (0, None), (-(2**63), None), (-(2**63), 2**63 - 1), (0, 1), (-3, 8), (0, 2**24 + 2), (2000, 3001),
    (0, 2**28 - 1), (0, 2**28), (0, 2**40), (-(2**33), 2**33), (2**53, 2**60), (-3001, -2000), (5, 2**62), (-(2**62) - 1, -7),
]  # fmt: skip


@with_torch
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("dtype", [d.name for d in dt.ALL_DTYPES])
def test_integer_ranges(dtype, bounds):
    torch_dtype, own_dtype = names(dtype)
    g = seeded(2)
    try:
        expected = torch.empty(1000, dtype=torch_dtype).random_(*bounds)
    except RuntimeError as error:
        with pytest.raises(type(error)):
            ri.random_range(g, 1000, own_dtype, *bounds)
    else:
        assert_same(expected, ri.random_range(g, 1000, own_dtype, *bounds), g)


@with_torch
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("n", [1, 5, 7, 8, 9, 1000])
def test_complex(n, dtype):
    torch_dtype, own_dtype = names(dtype)
    g = seeded(4, kept=True)
    assert_same(torch.randn(n, dtype=torch_dtype), ra.normal(g, n, own_dtype), g)
    assert_same(torch.rand(n, dtype=torch_dtype), ra.uniform(g, n, own_dtype), g)
    assert_same(torch.empty(n, dtype=torch_dtype).normal_(0.5, 2.0), ra.normal(g, n, own_dtype, 0.5, 2.0), g)
    strided = torch.empty(n, 2, dtype=torch_dtype)[:, 0].normal_()
    assert_same(strided, ra.normal(g, n, own_dtype, contiguous=False), g)


@with_torch
@pytest.mark.parametrize("p_dtype", FLOATS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_bernoulli_with_a_tensor(dtype, p_dtype):
    torch_p, own_p = names(p_dtype)
    torch_dtype, own_dtype = names(dtype)
    for n in SIZES:
        p = torch.linspace(0, 1, n, dtype=torch.float64).to(torch_p)
        g = seeded(n)
        ours = ra.bernoulli_tensor(g, bits(p), own_p, own_dtype)
        assert_same(torch.empty(n, dtype=torch_dtype).bernoulli_(p), ours, g)


LAYOUTS = {
    "transposed": lambda: torch.zeros(6, 8).t(),
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "permuted": lambda: torch.zeros(3, 4, 5, 2).permute(2, 0, 3, 1),
    "sliced": lambda: torch.zeros(6, 8)[::2, 1::3],
    "permuted slice": lambda: torch.zeros(6, 8, 3)[::2, 1::3].permute(2, 0, 1),
    "size one": lambda: torch.zeros(4, 1, 5).transpose(0, 1),
    "sizes one": lambda: torch.zeros(100).as_strided((1, 5, 1, 4), (7, 4, 4, 1)),
    "scalar": lambda: torch.zeros(()),
}


@with_torch
@pytest.mark.parametrize("layout", LAYOUTS)
def test_order_of_visits(layout):
    tensor = LAYOUTS[layout]()
    shape, n = tuple(tensor.shape), tensor.numel()
    g = seeded()
    flat = ra.uniform(g, n, dt.float32)
    assert_same(tensor.uniform_(), ra.place(flat, shape, tensor.stride()), g)
    np.testing.assert_array_equal(ra.visited(tensor.numpy(), shape, tensor.stride()), flat)
    for p in (torch.rand(shape), tensor.clone(), torch.rand(shape[-1:]).expand(shape)):
        g = seeded()
        chance = ra.visited(p.numpy(), shape, tensor.stride(), p.stride())
        flat = ra.bernoulli_tensor(g, chance, dt.float32, dt.float32)
        assert_same(tensor.bernoulli_(p), ra.place(flat, shape, tensor.stride(), p.stride()), g)


@with_torch
@pytest.mark.parametrize(
    "dtype", ["int64", "int32", "uint8", "int8", "int16", "float32", "float64", "float16", "bfloat16"]
)
def test_randperm(dtype):
    torch_dtype, own_dtype = names(dtype)
    limit = {"uint8": 256, "int8": 128, "int16": 30000, "float16": 2049, "bfloat16": 300}.get(dtype, 10**6)
    for n in (0, 1, 2, 15, 16, 17, 100, 128, 256, 300, 2049, 4095, 4096, 30000, 100_000):
        if n <= limit:
            g = seeded(n)
            assert_same(torch.randperm(n, dtype=torch_dtype), ri.randperm(g, n, own_dtype), g)


@with_torch
@pytest.mark.parametrize("dtype", FLOATS)
def test_alpha_dropout_noise(dtype):
    torch_dtype, own_dtype = names(dtype)
    torch.manual_seed(0)
    x = torch.randn(1000).to(torch_dtype)
    g = seeded(3)
    expected = torch.nn.functional.alpha_dropout(x, 0.4, True)
    scale, shift = (torch.from_numpy(v).view(torch_dtype) for v in ra.alpha_dropout_noise(g, 1000, own_dtype, 0.4))
    assert_same(expected, bits(x * scale + shift), g)


@with_torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_rrelu(dtype):
    torch_dtype, own_dtype = names(dtype)
    for n in SIZES:
        x = torch.randn(n).to(torch_dtype)
        g = seeded(n)
        noise = torch.empty_like(x)
        expected = torch._C._nn.rrelu_with_noise(x, noise, 0.1, 0.35, True)
        output, slope = rs.rrelu_noise(g, bits(x), own_dtype, 0.1, 0.35)
        assert_same(expected, output, g)
        assert_same(noise, slope, g)


@with_torch
@pytest.mark.parametrize("dtype", FLOATS)
def test_poisson(dtype):
    torch_dtype, own_dtype = names(dtype)
    rates = torch.cat((torch.linspace(0, 40, 3000), torch.logspace(-3, 4, 1000))).to(torch_dtype)
    g = seeded(5)
    assert_same(torch.poisson(rates), rs.poisson(g, bits(rates), own_dtype), g)


@with_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binomial(dtype):
    torch_dtype, own_dtype = names(dtype)
    count = torch.floor(torch.logspace(0, 5, 5000)).to(torch_dtype)
    chance = torch.linspace(0, 1, 101).repeat(50)[:5000].to(torch_dtype)
    count[7], chance[5] = -1, math.nan
    g = seeded(6)
    assert_same(torch.binomial(count, chance), rs.binomial(g, bits(count), bits(chance), own_dtype), g)


@with_torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_and_dirichlet(dtype):
    torch_dtype, own_dtype = names(dtype)
    alpha = torch.logspace(-3, 3, 3000).to(torch_dtype)
    alpha[3] = 0
    g = seeded(7, kept=True)
    assert_same(torch._standard_gamma(alpha), rs.standard_gamma(g, bits(alpha), own_dtype), g)
    alpha = torch.rand(200, 3).to(torch_dtype) * 3
    g = seeded(7, kept=True)
    assert_same(torch._sample_dirichlet(alpha), rs.dirichlet(g, bits(alpha), own_dtype), g)


@with_torch
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("count", "replacement"), [(1, False), (1, True), (5, False), (37, False), (50, True)])
def test_multinomial(dtype, count, replacement):
    torch_dtype, own_dtype = names(dtype)
    weights = torch.rand(40, 37).to(torch_dtype)
    g = seeded(8)
    expected = torch.multinomial(weights, count, replacement)
    ours = rs.multinomial(g, bits(weights), own_dtype, count, replacement)
    if not replacement and dtype in ("float16", "bfloat16"):
        # Equal scores are common in these types, and the order of equal ones is not specified: compare the scores.
        noise = rm.widen(ra.exponential(Generator().manual_seed(8), weights.numel(), own_dtype), own_dtype)
        values = rm.widen(bits(weights), own_dtype).reshape(40, 37)
        scores = rs.race_scores(values, noise.reshape(40, 37), own_dtype)
        np.testing.assert_array_equal(*(np.take_along_axis(scores, which, -1) for which in (ours, expected.numpy())))
        expected = torch.from_numpy(ours)
    assert_same(expected, ours, g)


@with_torch
@pytest.mark.parametrize("draws", [0, 1, 7, 623, 624, 625, 1248, 2000])
@pytest.mark.parametrize("kept", [False, True])
def test_state_goes_both_ways(draws, kept):
    g = seeded(9, kept, draws)
    assert torch.get_rng_state().numpy().tobytes() == g.state_bytes()
    fresh = Generator()
    fresh.set_state_bytes(torch.get_rng_state().numpy().tobytes())
    expected = torch.randn(5)
    np.testing.assert_array_equal(ra.normal(fresh, 5, dt.float32), expected.numpy())
    torch.set_rng_state(torch.frombuffer(bytearray(g.state_bytes()), dtype=torch.uint8))
    assert torch.equal(torch.randn(5), expected)


@with_torch
def test_mixed_sequence_over_many_blocks():
    g = seeded(10)
    for n in (1, 3, 17, 5, 700, 2, 33):
        assert_same(torch.randn(n), ra.normal(g, n, dt.float32), g)
        assert_same(torch.rand(n, dtype=torch.float64), ra.uniform(g, n, dt.float64), g)
        assert_same(torch.randint(9, (n,)), ri.random_range(g, n, dt.int64, 0, 9), g)
        assert_same(torch.randperm(n), ri.randperm(g, n), g)
        assert_same(torch.poisson(torch.full((n,), 12.0)), rs.poisson(g, np.full(n, 12, np.float32), dt.float32), g)
