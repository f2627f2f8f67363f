"""Kernels of operators on NVIDIA GPUs: every module of this package declares some with `@operator.on("cuda")`.

It is imported when the device is first used: it is above the operators, whose records it adds to. No module needs a GPU or CUDA."""

# ruff: noqa: F401

from . import (
    attention,
    attention32,
    attention_blocks,
    attention_rows,
    attention_tiles,
    conv,
    conv32,
    embedding,
    fft,
    finding,
    index_put,
    joining,
    launching,
    layer_norm,
    linalg,
    loss,
    matmul,
    norm,
    pooling,
    random,
    rnn,
    sampling,
    scan,
    sorting,
    sparse,
    spectral,
    unscaling,
)
