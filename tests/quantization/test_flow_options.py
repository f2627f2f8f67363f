"""The flow of traced models with every option: parts apart, classes of one's own, quantized inputs and results, dicts, backends, decomposed."""

from __future__ import annotations

import pytest
from answers.programs import check, refusals, short

SETUP = """
import re
Q, fx, C = module("ao.quantization"), module("ao.quantization.quantize_fx"), module("ao.quantization.fx.custom_config")
O, B, nnq, able, nni = module("ao.quantization.observer"), module("ao.quantization.backend_config"), module("ao.nn.quantized"), module("ao.nn.quantizable"), module("ao.nn.intrinsic")
M, S = Q.QConfigMapping, Q.get_default_qconfig_mapping
x = exact(2, 4)
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)
    def forward(self, x):
        return self.second(F.relu(self.first(x)))
class Many(nn.Module):
    def __init__(self):
        super().__init__()
        self.two = Two()
        self.last = nn.Linear(3, 4)
        self.kept = 7
    def forward(self, x):
        x = self.last(self.two(x))
        return x + x, {"a": x, "b": [x, None]}
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.two, self.last = Two(), nn.Linear(3, 4)
    def forward(self, x):
        return self.last(self.two(self.last(x[:, :3])))
def flow(model, mapping=None, custom=None, convert="convert_fx", train=False, inputs=None, equal=None, backend=None, **more):
    inputs = inputs if inputs is not None else (x,)
    mapping = mapping if mapping is not None else S("x86")
    make = fx.prepare_qat_fx if train else fx.prepare_fx
    made = make(model.train() if train else model.eval(), mapping, inputs, prepare_custom_config=custom, backend_config=backend, **({"_equalization_config": equal} if equal is not None else {}))
    made.eval()
    made(*inputs)
    prepared = code(made)
    done = getattr(fx, convert)(made, backend_config=backend, **more)
    given = inputs
    if custom is not None and getattr(custom, "input_quantized_indexes", None):
        given = tuple(L.quantize_per_tensor(v, 0.02, 64, L.quint8) for v in inputs)
    return prepared, code(done), done(*given), names(done)
def code(made):
    return [plain(made.code)] + [[n, plain(m.code)] for n, m in made.named_children() if hasattr(m, "graph")]
def plain(text):
    text = text.replace("flambeau", "torch")
    if "quantized_decomposed" in text:  # which overload of an operator: ours have one
        text = re.sub(r"[_.](default|tensor)(?=_[0-9]|[^a-z_])", "", re.sub(r"[_.](default|tensor)(?=_[0-9]|[^a-z_])", "", text))
    return text
def names(made):
    return [[n, type(m).__name__] for n, m in made.named_modules()], sorted(made.state_dict())
class Watched(nn.Module):
    def __init__(self, held):
        super().__init__()
        self.held = held
    def forward(self, x):
        return self.held(x) * 1.0
    @classmethod
    def from_float(cls, given):
        made = cls(given)
        made.qconfig = given.qconfig
        return made
class Done(nn.Module):
    def __init__(self, held, watcher):
        super().__init__()
        self.held, self.watcher = held, watcher
    def forward(self, x):
        scale, zero = self.watcher.calculate_qparams()
        return L.quantize_per_tensor(self.held(x.dequantize() if x.is_quantized else x), float(scale), int(zero), L.quint8)
    @classmethod
    def from_observed(cls, given):
        return cls(given.held, given.activation_post_process)
class Own(nn.Linear):
    pass
class WithOwn(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.own, self.last = nn.Linear(4, 4), Own(4, 3), nn.Linear(3, 2)
    def forward(self, x):
        return self.last(self.own(self.first(x)))
class Rec(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(4, 3), nn.Linear(3, 2)
    def forward(self, x, h, c):
        out, (h, c) = self.lstm(x, (h, c))
        return self.last(out), h, c
class Cells(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.gru, self.first = nn.LSTMCell(4, 3), nn.GRU(4, 3), nn.Linear(4, 4)
    def forward(self, x):
        x = self.first(x)
        return self.cell(x)[0], self.gru(x[None])[0]
class Dict(nn.Module):
    def __init__(self, result):
        super().__init__()
        self.first, self.result = nn.Linear(4, 3), result
    def forward(self, x):
        return self.result(self.first(x))
class Whole(Rec):
    def forward(self, x, h, c):
        return self.lstm(x, (h, c))
class Sums(nn.Module):
    def __init__(self, left, norm, relu):
        super().__init__()
        self.conv, self.left = nn.Conv2d(3, 3, 3, padding=1), left
        self.norm = nn.BatchNorm2d(3) if norm else None
        self.relu = nn.ReLU() if relu else None
        self.first = nn.Conv2d(3, 3, 1)
    def forward(self, x):
        x = self.first(x)
        y = self.conv(x)
        y = y if self.norm is None else self.norm(y)
        y = y + x if self.left else L.add(x, y)
        return y if self.relu is None else self.relu(y)
def observed(model, inputs):
    made = fx.prepare_fx(model.eval(), S("x86"), inputs, backend_config=B.get_onednn_backend_config())
    result = made(*inputs)
    return code(made), names(made), result, code(fx.convert_to_reference_fx(made, backend_config=B.get_onednn_backend_config()))
def halves():
    kind = B.DTypeConfig(L.float16, L.float16, L.float16, L.float16)
    made = B.BackendConfig("halves")
    for pattern in (nn.Linear, F.relu):
        one = B.BackendPatternConfig(pattern).add_dtype_config(kind)
        if pattern is nn.Linear:
            one.set_root_module(nn.Linear).set_reference_quantized_module(module("ao.nn.quantized.reference").Linear)
        made.set_backend_pattern_config(one)
    return made
P = C.PrepareCustomConfig
own_prepare = lambda: P().set_float_to_observed_mapping(Own, Watched)
own_convert = lambda: C.ConvertCustomConfig().set_observed_to_quantized_mapping(Watched, Done)
half = Q.QConfig(O.PlaceholderObserver.with_args(dtype=L.float16), O.PlaceholderObserver.with_args(dtype=L.float16))
half_weight = Q.QConfig(O.PlaceholderObserver.with_args(dtype=L.float32), O.PlaceholderObserver.with_args(dtype=L.float16))
"""
# A program for each line: expressions, between semicolons.
CALLS = """
flow(Two(), custom=P().set_input_quantized_indexes([0])); flow(Two(), custom=P().set_output_quantized_indexes([0])); flow(Many(), custom=P().set_output_quantized_indexes([0]).set_preserved_attributes(["kept"])); flow(Many(), custom=P().set_output_quantized_indexes([1])); flow(Dict(lambda x: {"a": x, "b": x + 1}), custom=P().set_output_quantized_indexes([0])); flow(Dict(lambda x: [x, (x * 2, x)]), custom=P().set_output_quantized_indexes([1])); flow(Dict(lambda x: None)); flow(Dict(lambda x: (x, None))); flow(Dict(lambda x: x.shape[0]))
flow(Two(), convert="_convert_to_reference_decomposed_fx"); flow(Two(), M().set_global(Q.default_dynamic_qconfig), convert="_convert_to_reference_decomposed_fx"); flow(Two(), M().set_global(Q.default_per_channel_qconfig), convert="_convert_to_reference_decomposed_fx"); flow(Two(), M().set_global(Q.QConfig(O.PerChannelMinMaxObserver.with_args(ch_axis=1), O.default_weight_observer)), convert="_convert_to_reference_decomposed_fx"); flow(Two(), M().set_global(Q.QConfig(O.PlaceholderObserver.with_args(dtype=L.quint8, is_dynamic=True, qscheme=L.per_tensor_symmetric, quant_min=0, quant_max=255, eps=0.001), O.default_weight_observer)), convert="_convert_to_reference_decomposed_fx")
flow(Two(), M().set_global(half)); flow(Two(), M().set_global(half), convert="convert_to_reference_fx"); flow(Two(), M().set_global(half_weight)); flow(Two(), M().set_global(Q.float16_dynamic_qconfig)); flow(Two(), M().set_global(Q.default_dynamic_qconfig), convert="convert_to_reference_fx"); flow(Two(), M().set_global(Q.float16_static_qconfig), convert="convert_to_reference_fx")
flow(Many(), custom=P().set_standalone_module_name("two", None, (x,), None, None)); flow(Many(), custom=P().set_standalone_module_class(Two, None, (x,), None, None)); flow(Many(), custom=P().set_standalone_module_name("two", None, (x,), P().set_input_quantized_indexes([0]).set_output_quantized_indexes([0]), None)); flow(Inner(), inputs=(exact(2, 3),), custom=P().set_standalone_module_name("two", M().set_global(Q.default_qconfig), (x,), P().set_input_quantized_indexes([0]).set_output_quantized_indexes([0]), None)); flow(Inner(), inputs=(exact(2, 3),), custom=P().set_standalone_module_class(Two, None, (x,), None, None), convert="convert_to_reference_fx"); flow(Inner(), inputs=(exact(2, 3),), custom=P().set_standalone_module_class(Two, None, (x,), P().set_output_quantized_indexes([1]), None))
flow(WithOwn(), custom=own_prepare(), convert_custom_config=own_convert()); flow(WithOwn(), M().set_global(Q.default_qconfig).set_module_name("own", None), custom=own_prepare(), convert_custom_config=own_convert()); flow(WithOwn(), custom={"float_to_observed_custom_module_class": {"static": {Own: Watched}}}, convert_custom_config={"observed_to_quantized_custom_module_class": {"static": {Watched: Done}}}); flow(WithOwn(), custom=P().set_non_traceable_module_names(["own"])); flow(WithOwn(), custom=P().set_non_traceable_module_classes([Own]))
flow(Rec(), inputs=(exact(5, 2, 4), exact(1, 2, 3), exact(1, 2, 3)), mapping=M().set_global(Q.default_qconfig)); flow(Rec(), inputs=(exact(5, 2, 4), exact(1, 2, 3), exact(1, 2, 3)), mapping=M().set_global(Q.default_dynamic_qconfig)); flow(Cells(), M().set_global(Q.default_dynamic_qconfig)); flow(Cells(), M().set_global(Q.default_dynamic_qconfig), convert="convert_to_reference_fx"); flow(Cells(), M().set_global(Q.float16_dynamic_qconfig))
flow(Two(), {"": Q.default_qconfig}); flow(Two(), {"": Q.default_qconfig, "module_name": [("second", None)]}); flow(Two(), 3); flow(Two(), train=True, mapping=Q.get_default_qat_qconfig_mapping("x86")); flow(Two(), qconfig_mapping=S("x86")); flow(Two(), qconfig_mapping=M().set_global(Q.default_qconfig)); flow(Two(), qconfig_mapping={"": None}); flow(Two(), M().set_global(Q.default_qconfig), qconfig_mapping=M().set_global(Q.default_qconfig).set_module_name("first", None)); flow(Two(), M().set_global(Q.default_qconfig), qconfig_mapping=M().set_global(None).set_module_name("first", Q.default_qconfig)); fx.convert_fx(nn.Linear(1, 1)); fx.convert_fx(module("fx").symbolic_trace(Two())); fx.prepare_fx(Two(), S("x86"), (x,)); fx.prepare_qat_fx(Two().eval(), S("x86"), (x,)); flow(Two(), _remove_qconfig=False)
flow(Two(), M().set_global(Q.default_qconfig), equal=M().set_global(module("ao.quantization.fx._equalize").default_equalization_qconfig)); flow(Two(), M().set_global(Q.default_qconfig), equal={"": module("ao.quantization.fx._equalize").default_equalization_qconfig}); flow(Two(), backend=B.get_native_backend_config()); flow(Two(), backend=B.get_fbgemm_backend_config()); flow(Two(), backend=B.get_qnnpack_backend_config()); flow(Two(), backend=B.get_onednn_backend_config()); flow(Two(), backend=B.get_native_backend_config().to_dict())
flow(Rec(), inputs=(exact(5, 2, 4), exact(1, 2, 3), exact(1, 2, 3)), mapping=M().set_global(Q.default_qconfig), custom=P().set_float_to_observed_mapping(nn.LSTM, able.LSTM), convert_custom_config=C.ConvertCustomConfig().set_observed_to_quantized_mapping(able.LSTM, nnq.LSTM)); flow(Whole(), inputs=(exact(5, 2, 4), exact(1, 2, 3), exact(1, 2, 3)), mapping=M().set_global(Q.default_qconfig), custom=P().set_float_to_observed_mapping(nn.LSTM, able.LSTM), convert_custom_config=C.ConvertCustomConfig().set_observed_to_quantized_mapping(able.LSTM, nnq.LSTM))
[observed(Sums(left, norm, relu), (exact(1, 3, 6, 5),)) for left in (True, False) for norm in (True, False) for relu in (True, False)]; flow(nn.Sequential(nn.Linear(4, 3), nn.LeakyReLU(0.1), nn.Linear(3, 2), nn.Tanh()), backend=B.get_onednn_backend_config()); observed(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.LeakyReLU(0.2)), (x,)); flow(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.LeakyReLU(0.2)), Q.get_default_qat_qconfig_mapping("x86"), train=True, backend=B.get_onednn_backend_config()); flow(Sums(True, True, False), Q.get_default_qat_qconfig_mapping("x86"), inputs=(exact(1, 3, 6, 5),), train=True, backend=B.get_onednn_backend_config())
flow(Two(), M().set_global(half), backend=halves(), convert="convert_to_reference_fx"); flow(Two(), M().set_global(half), backend=halves()); flow(Two(), M().set_global(half).set_module_name("second", None), backend=halves(), convert="convert_to_reference_fx")
"""


@pytest.mark.parametrize("program", refusals(CALLS), ids=short)
def test_program(program: str) -> None:
    check(program, SETUP)
