"""Recurrent networks and transformers against PyTorch's: results, states, gradients, second derivatives, packed sequences, masks."""

from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

from .layer_table import build

torch = judge("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

RECURRENT = [
    "nn.RNN(3, 4)",
    "nn.RNN(3, 4, 2, nonlinearity='relu', bias=False)",
    "nn.RNN(3, 4, bidirectional=True, batch_first=True)",
    "nn.LSTM(3, 4)",
    "nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)",
    "nn.LSTM(3, 4, 2, bias=False)",
    "nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True)",
    "nn.LSTM(3, 4, proj_size=3, bias=False)",
    "nn.GRU(3, 4)",
    "nn.GRU(3, 4, 2, bidirectional=True)",
    "nn.GRU(3, 4, bias=False, batch_first=True)",
]
CELLS = ["nn.RNNCell(3, 4)", "nn.RNNCell(3, 4, False, 'relu')", "nn.LSTMCell(3, 4)", "nn.GRUCell(3, 4, bias=False)"]


def ramp(L: Any, *shape: int, turn: float = 0.7) -> Any:
    """Numbers between -1 and 1, no two alike, that record gradients."""
    count = int(np.prod(shape))
    return (L.arange(count, dtype=L.float64) * turn).sin().reshape(shape).requires_grad_()


def tensors_of(value: Any) -> list[Any]:
    """The tensors of a result, of packed sequences their data and the sizes of their steps."""
    if value is None:
        return []
    if hasattr(value, "batch_sizes"):
        return [value.data, value.batch_sizes]
    return [t for v in value for t in tensors_of(v)] if isinstance(value, (tuple, list)) else [value]


def learned(L: Any, module: Any, outputs: Any, given: list[Any]) -> list[Any]:
    """Results, and what a loss that tells them all apart teaches inputs and parameters."""
    results = tensors_of(outputs)
    loss = sum((t * ramp(L, *t.shape, turn=0.3 + i)).sum() for i, t in enumerate(results) if t.requires_grad)
    loss.backward()
    return [*results, *(t.grad for t in given), *(p.grad for p in module.parameters())]


def compare(make: str, use: Any, close: float = 1e-9, **options: Any) -> None:
    """`use(library, module)` gives the same tensors in both libraries, from the same initial weights in double precision."""
    found = []
    for L in (torch, flambeau):
        L.manual_seed(3)
        tensors = use(L, build(L, make).double(), **options)
        found.append([None if t is None else t.detach().double().numpy() for t in tensors])
    assert len(found[0]) == len(found[1])
    for number, (theirs, ours) in enumerate(zip(*found)):
        assert (theirs is None) == (ours is None), number
        if theirs is not None:
            np.testing.assert_allclose(ours, theirs, rtol=close, atol=close, err_msg=f"tensor {number}")


def states(L: Any, module: Any, batch: int | None) -> list[Any]:
    """Initial states with numbers in them: h, and c of an LSTM."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    widths = [module.proj_size or module.hidden_size, module.hidden_size][: 2 if module.mode == "LSTM" else 1]
    lead = (count,) if batch is None else (count, batch)
    return [ramp(L, *lead, width, turn=0.4 + i) for i, width in enumerate(widths)]


def run(L: Any, module: Any, batch: int | None, given_states: bool) -> list[Any]:
    shape = (5, 3) if batch is None else (batch, 5, 3) if module.batch_first else (5, batch, 3)
    given = [ramp(L, *shape)]
    if not given_states:
        return learned(L, module, module(*given), given)
    first = states(L, module, batch)
    out = module(given[0], tuple(first) if len(first) == 2 else first[0])
    return learned(L, module, out, [*given, *first])


@pytest.mark.parametrize("given_states", [True, False], ids=["states", "zeros"])
@pytest.mark.parametrize("batch", [2, None], ids=["batch", "alone"])
@pytest.mark.parametrize("make", RECURRENT)
def test_recurrent(make, batch, given_states):
    compare(make, run, batch=batch, given_states=given_states)


@pytest.mark.parametrize("make", RECURRENT)
def test_recurrent_over_packed_sequences(make):
    def use(L, module):
        tools = L.nn.utils.rnn
        parts = [ramp(L, n, 3, turn=0.2 + n) for n in (2, 5, 3)]
        packed = tools.pack_sequence(parts, enforce_sorted=False)
        first = states(L, module, 3)
        out, *last = module(packed, tuple(first) if len(first) == 2 else first[0])
        padded, lengths = tools.pad_packed_sequence(out, batch_first=True, padding_value=0.5, total_length=6)
        return [*learned(L, module, [out, *last, padded], [*parts, *first]), lengths]

    compare(make, use)


@pytest.mark.parametrize("make", [*RECURRENT, *CELLS])
def test_second_derivatives(make):
    def use(L, module):
        x = ramp(L, 3, 3) if "Cell" in make else ramp(L, 3, 2, 3)
        results = tensors_of(module(x))
        loss = sum((t * ramp(L, *t.shape, turn=0.3 + i).detach()).sum() for i, t in enumerate(results))
        leaves = [x, *module.parameters()]
        first = L.autograd.grad(loss, leaves, create_graph=True)
        second = L.autograd.grad(sum(g.pow(2).sum() for g in first), leaves, materialize_grads=True)
        return [*first, *second]

    compare(make, use)


@pytest.mark.parametrize("make", CELLS)
def test_cells(make):
    def use(L, module):
        given = [ramp(L, 2, 3), *(ramp(L, 2, 4, turn=0.4 + i) for i in range(2 if "LSTM" in make else 1))]
        out = module(given[0], tuple(given[1:]) if len(given) == 3 else given[1])
        return [*learned(L, module, out, given), *tensors_of(module(given[0][0]))]

    compare(make, use)


@pytest.mark.parametrize("make", ["nn.LSTM(3, 4, 3, dropout=0.5)", "nn.GRU(3, 4, 2, dropout=0.3, bidirectional=True)"])
def test_what_is_dropped_between_layers(make):
    def use(L, module):
        L.manual_seed(11)
        return tensors_of(module(ramp(L, 4, 2, 3)))

    compare(make, use)


@pytest.mark.parametrize(
    ("make", "shape", "hidden"),
    [("nn.LSTM(3, 4)", (5, 2, 7), None), ("nn.GRU(3, 4)", (5, 2, 3), (1, 3, 4)),
     ("nn.RNN(3, 4, 2)", (5, 2, 3), (1, 2, 4)), ("nn.GRU(3, 4)", (5, 3), (1, 1, 4)), ("nn.GRUCell(3, 4)", (2, 5), None),
     ("nn.LSTMCell(3, 4)", (1, 2, 3), None), ("nn.LSTM(3, 4)", (5, 2, 3, 1), None), ("nn.GRU(3, 4)", (3,), None), ("nn.RNNCell(3, 4)", (2, 3), (3, 4))],
)  # fmt: skip
def test_sizes_that_do_not_fit(make, shape, hidden):
    told = []
    for L in (torch, flambeau):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            build(L, make)(L.ones(shape), *([] if hidden is None else [L.ones(hidden)]))
        told.append((caught.type.__name__, str(caught.value)))
    assert told[0] == told[1]


def hidden_pairs(L: Any, rows: int, columns: int) -> Any:
    """A mask that hides some places, and never all of a row."""
    return (L.arange(rows * columns) % 3 == 1).reshape(rows, columns)


def source_and_target(L: Any, batch_first: bool = False) -> list[Any]:
    shapes = [(2, 5, 8), (2, 3, 8)] if batch_first else [(5, 2, 8), (3, 2, 8)]
    return [ramp(L, *shape, turn=0.6 + i) for i, shape in enumerate(shapes)]


def padding(L: Any) -> Any:
    return L.tensor([[False] * 5, [False] * 3 + [True] * 2])


ENCODERS = [
    "nn.TransformerEncoderLayer(8, 2, 16, 0.0)",
    "nn.TransformerEncoderLayer(8, 4, 12, 0.0, 'gelu', layer_norm_eps=1e-2, batch_first=True, norm_first=True)",
    "nn.TransformerEncoderLayer(8, 2, 16, 0.0, T.tanh, bias=False)",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 2, nn.LayerNorm(8))",
    "nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)",
]
ENCODER_MASKS = {
    "none": lambda L, masks: {},
    "pairs": lambda L, masks: {masks[0]: hidden_pairs(L, 5, 5)},
    "added": lambda L, masks: {masks[0]: ramp(L, 5, 5).detach()},
    "padding": lambda L, masks: {masks[1]: padding(L)},
    "causal": lambda L, masks: {masks[0]: L.nn.Transformer.generate_square_subsequent_mask(5, dtype=L.float64), "is_causal": True},
    "both": lambda L, masks: {masks[0]: hidden_pairs(L, 5, 5), masks[1]: padding(L)},
}  # fmt: skip


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("mask", ENCODER_MASKS)
@pytest.mark.parametrize("make", ENCODERS)
def test_encoders(make, mask, training):
    def use(L, module):
        given = source_and_target(L, "batch_first" in make)[:1]
        names = ("mask" if "nn.TransformerEncoder(" in make else "src_mask", "src_key_padding_mask")
        return learned(L, module, module.train(training)(*given, **ENCODER_MASKS[mask](L, names)), given)

    compare(make, use)


@pytest.mark.parametrize("mask", sorted({*ENCODER_MASKS} - {"added"}))
@pytest.mark.parametrize("make", ENCODERS)
def test_encoders_without_gradients(make, mask):
    """PyTorch takes another way then, leaves out what is padding, and hides the places where an added mask is not zero."""

    def use(L, module):
        names = ("mask" if "nn.TransformerEncoder(" in make else "src_mask", "src_key_padding_mask")
        with L.no_grad():
            return [module.eval()(source_and_target(L, "batch_first" in make)[0], **ENCODER_MASKS[mask](L, names))]

    compare(make, use)


DECODERS = [
    "nn.TransformerDecoderLayer(8, 2, 16, 0.0)",
    "nn.TransformerDecoderLayer(8, 2, 16, 0.0, 'gelu', norm_first=True, batch_first=True, bias=False)",
    "nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0), 2, nn.LayerNorm(8))",
]
DECODER_MASKS = {
    "none": lambda L: {},
    "causal": lambda L: {"tgt_mask": L.nn.Transformer.generate_square_subsequent_mask(3, dtype=L.float64), "tgt_is_causal": True},
    "memory": lambda L: {"memory_mask": hidden_pairs(L, 3, 5), "memory_key_padding_mask": padding(L)},
    "targets": lambda L: {"tgt_mask": hidden_pairs(L, 3, 3), "tgt_key_padding_mask": padding(L)[:, 2:]},
}  # fmt: skip


@pytest.mark.parametrize("mask", DECODER_MASKS)
@pytest.mark.parametrize("make", DECODERS)
def test_decoders(make, mask):
    def use(L, module):
        memory, target = source_and_target(L, "batch_first" in make)
        return learned(L, module, module(target, memory, **DECODER_MASKS[mask](L)), [target, memory])

    compare(make, use)


@pytest.mark.parametrize(
    "make",
    ["nn.Transformer(8, 2, 1, 2, 16, 0.0)", "nn.Transformer(8, 2, 2, 1, 12, 0.0, 'gelu', batch_first=True, norm_first=True, bias=False)"],
)  # fmt: skip
def test_whole_transformers(make):
    def use(L, module):
        source, target = source_and_target(L, "batch_first" in make)
        masks = {
            "tgt_mask": module.generate_square_subsequent_mask(3, dtype=L.float64),
            "src_mask": hidden_pairs(L, 5, 5),
        }
        out = module(source, target, **masks, src_key_padding_mask=padding(L), memory_key_padding_mask=padding(L))
        return learned(L, module, out, [source, target])

    compare(make, use)


def test_a_transformer_drops_what_pytorchs_drops():
    def use(L, module):
        L.manual_seed(5)
        return [module(*source_and_target(L))]

    compare("nn.Transformer(8, 2, 1, 1, 16, 0.3)", use)


@pytest.mark.parametrize("batch", [True, False], ids=["batch", "alone"])
@pytest.mark.parametrize("weights", [None, True, False], ids=["no weights", "averaged", "by head"])
@pytest.mark.parametrize(
    "make",
    ["nn.MultiheadAttention(8, 2)", "nn.MultiheadAttention(8, 4, bias=False, batch_first=True)",
     "nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)", "nn.MultiheadAttention(8, 2, kdim=8, vdim=8)"],
)  # fmt: skip
def test_attention_of_several_heads(make, weights, batch):
    def use(L, module):
        source, target = source_and_target(L, "batch_first" in make)
        if not batch:
            axis = 0 if "batch_first" in make else 1
            source, target = (t.detach().select(axis, 1).requires_grad_() for t in (source, target))
        masks = {"attn_mask": hidden_pairs(L, 3, 5), "key_padding_mask": padding(L) if batch else padding(L)[1]}
        shown = {"need_weights": weights is not None, "average_attn_weights": bool(weights)}
        return learned(L, module, module(target, source, source, **masks, **shown), [source, target])

    compare(make, use)


@pytest.mark.parametrize(
    ("make", "shapes"),
    [("nn.Transformer(8, 2)", [(5, 2, 8), (3, 1, 8)]), ("nn.Transformer(8, 2)", [(5, 2, 7), (3, 2, 8)]),
     ("nn.TransformerEncoderLayer(8, 2)", [(5, 2, 7)]), ("nn.MultiheadAttention(8, 2)", [(5, 2, 8), (3, 2, 8), (4, 2, 8)]),
     ("nn.MultiheadAttention(8, 2)", [(8,), (8,), (8,)])],
)  # fmt: skip
def test_sequences_that_do_not_fit(make, shapes):
    told = []
    for L in (torch, flambeau):
        with pytest.raises((RuntimeError, AssertionError)) as caught:
            build(L, make)(*(L.ones(shape) for shape in shapes))
        told.append(caught.type.__name__)
    assert told[0] == told[1]


@pytest.mark.parametrize("arguments", ["8, 3", "0, 1", "8, 2, nhead=1"])
def test_layers_that_cannot_be(arguments):
    told = []
    for L in (torch, flambeau):
        with pytest.raises((AssertionError, ValueError, TypeError)) as caught:
            build(L, f"nn.TransformerEncoderLayer({arguments})")
        told.append(caught.type.__name__)
    assert told[0] == told[1]
