"""Quantizing traced models: matching patterns, putting observers in, converting, and lowering to quantized operators."""
