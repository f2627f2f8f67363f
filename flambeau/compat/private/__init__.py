"""PyTorch's private modules that programs and libraries import from: `torch._C` is `compat.private._C`."""
