"""Quantization of traced models: pattern matching, insertion of observers, conversion, and lowering to quantized operators."""
