"""Quantization: models whose weights and activations are 8-bit numbers.

>>> model.qconfig = get_default_qconfig("x86")
>>> prepared = prepare(model)             # observers are put in
>>> prepared(calibration_data)            # and look
>>> quantized = convert(prepared)         # layers become their quantized forms

`quantize_dynamic(model)` needs no data; `quantize_fx` has the same for traced models; docs/quantization.md tells more.
"""
