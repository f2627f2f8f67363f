"""PyTorch's private rooms, as far as programs and libraries import from them: `torch._C` is `compat.private._C`."""
