"""Quantizable LSTM and attention outside a flow, and dynamically quantized recurrent layers: numbers and names as in PyTorch."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
Q, able, nnqd, nnq = module("ao.quantization"), module("ao.nn.quantizable"), module("ao.nn.quantized.dynamic"), module("ao.nn.quantized")
def given(made, qconfig=None):
    made.qconfig = qconfig or Q.default_qconfig
    return made
def names(made):
    return [[n, type(m).__name__] for n, m in made.named_modules()]
def lstm(*sizes, hidden=None, x=None, split=False, **more):
    made = able.LSTM.from_float(given(nn.LSTM(*sizes, **more)), split_gates=split)
    return made(exact(5, 2, 3) if x is None else x, hidden), names(made), made._get_name()
def cell(split, hidden=None, **more):
    made = able.LSTMCell.from_float(given(nn.LSTMCell(3, 4, **more)), split_gates=split)
    return made(exact(2, 3), hidden), names(made), made._get_name(), made.igates.qconfig is Q.default_qconfig
def attend(q=(5, 2, 4), k=(6, 2, 4), v=(6, 2, 4), call={}, **more):
    made = able.MultiheadAttention.from_float(given(nn.MultiheadAttention(4, 2, **more).eval()))
    return made(exact(*q), exact(*k), exact(*v, scale=0.5), **call), made._get_name(), list(made.state_dict())
def dynamic(name, *sizes, x=None, dtype=L.qint8, hidden=None, **more):
    made = getattr(nnqd, name).from_float(given(getattr(nn, name)(*sizes, **more), Q.default_dynamic_qconfig if dtype == L.qint8 else Q.float16_dynamic_qconfig))
    return made(exact(5, 2, 3) if x is None else x, hidden), made.get_weight(), made.get_bias()
packed = lambda **o: nn.utils.rnn.pack_padded_sequence(exact(5, 3, 3), L.tensor([2, 5, 3]), enforce_sorted=False, **o)
states = exact(1, 2, 4), exact(1, 2, 4, scale=0.5)
"""
# A program for each line: expressions, between semicolons.
CALLS = """
lstm(3, 4); lstm(3, 4, 2); lstm(3, 4, batch_first=True); lstm(3, 4, bidirectional=True); lstm(3, 4, 2, bidirectional=True, batch_first=True); lstm(3, 4, bias=False); lstm(3, 4, split=True); lstm(3, 4, 2, split=True, bias=False); lstm(3, 4, hidden=states); lstm(3, 4, batch_first=True, x=exact(2, 5, 3), hidden=states); lstm(3, 4, 2, hidden=(exact(2, 2, 4), exact(2, 2, 4))); lstm(3, 4, 2, bidirectional=True, hidden=(exact(4, 2, 4), exact(4, 2, 4))); lstm(3, 4, hidden=[(exact(2, 4), exact(2, 4))])
cell(False); cell(True); cell(True, bias=False); cell(False, (exact(2, 4), exact(2, 4, scale=0.5))); able.LSTMCell.from_float(nn.LSTMCell(3, 4)); able.LSTMCell.from_float(given(nn.GRUCell(3, 4))); able.LSTMCell.from_params(exact(16, 3), exact(16, 4), exact(16)); able.LSTMCell.from_params(exact(16, 3), exact(16, 4), exact(16), exact(16, scale=0.5))(exact(2, 3)); able.LSTMCell.from_params(exact(16, 3), exact(16, 4), exact(16), exact(16, scale=0.5), True)(exact(2, 3)); able.LSTMCell(3, 4).initialize_hidden(2); able.LSTMCell(3, 4).initialize_hidden(3, True); raised(lambda: able.LSTM(3, 4, dropout=0.5)); raised(lambda: able.LSTM(3, 4, 2, dropout=0.5)); able.LSTM.from_float(nn.LSTM(3, 4)); able.LSTM.from_float(given(nn.GRU(3, 4)))
attend(); attend(batch_first=True, q=(2, 5, 4), k=(2, 6, 4), v=(2, 6, 4)); attend(bias=False); attend(add_bias_kv=True); attend(add_zero_attn=True); attend(add_bias_kv=True, add_zero_attn=True, call={"attn_mask": L.zeros(5, 6), "key_padding_mask": L.tensor([[True] + [False] * 5] * 2)}); attend(kdim=3, vdim=5, k=(6, 2, 3), v=(6, 2, 5)); attend(call={"need_weights": False}); attend(call={"average_attn_weights": False}); attend(call={"key_padding_mask": L.tensor([[False, True, False, False, False, True], [False] * 5 + [True]])}); attend(call={"key_padding_mask": L.tensor([[0, 1, 0, 0, 0, 1], [0] * 5 + [1]], dtype=L.uint8)}); attend(call={"attn_mask": exact(5, 6) > 0.3}); attend(call={"attn_mask": (exact(5, 6) > 0.3).to(L.uint8)}); attend(call={"attn_mask": exact(4, 5, 6)}); attend(call={"attn_mask": exact(3, 5, 6)}); attend(call={"key_padding_mask": exact(3, 6) > 0}); attend(call={"key_padding_mask": exact(2, 5) > 0}); attend(call={"attn_mask": exact(4, 5, 5)}); attend(call={"attn_mask": exact(5, 5)}); attend(v=(7, 2, 4)); attend(k=(6, 3, 4), v=(6, 3, 4)); attend(k=(7, 2, 4)); attend(q=(5, 2, 6))
able.MultiheadAttention.from_float(nn.MultiheadAttention(4, 2)); able.MultiheadAttention.from_float(given(nn.Linear(4, 2))); able.MultiheadAttention.from_observed(3)
dynamic("LSTM", 3, 4); dynamic("LSTM", 3, 4, 2, bidirectional=True); dynamic("LSTM", 3, 4, batch_first=True, hidden=(exact(1, 5, 4), exact(1, 5, 4))); dynamic("LSTM", 3, 4, dtype=L.float16); dynamic("GRU", 3, 4); dynamic("GRU", 3, 4, 2, bidirectional=True); dynamic("GRU", 3, 4, batch_first=True); dynamic("GRU", 3, 4, hidden=exact(1, 2, 4)); dynamic("LSTM", 3, 4, x=packed()); dynamic("LSTM", 3, 4, x=packed(), hidden=(exact(1, 3, 4), exact(1, 3, 4, scale=0.5)))
module("ao.nn.quantized.dynamic.modules.rnn").apply_permutation(exact(2, 3), L.tensor([2, 0, 1])); module("ao.nn.quantized.dynamic.modules.rnn").apply_permutation(exact(2, 3), L.tensor([1, 0]), 0); [dynamic(n, 3, 4, x=exact(2, 3)) for n in ("LSTMCell", "GRUCell", "RNNCell")]; dynamic("RNNCell", 3, 4, x=exact(2, 3), nonlinearity="relu"); dynamic("LSTMCell", 3, 4, x=exact(2, 3), hidden=(exact(2, 4), exact(2, 4))); dynamic("GRUCell", 3, 4, x=exact(2, 3), dtype=L.float16)
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
