"""Helpers that the tests of other projects import from PyTorch's own: `torch.testing._internal`."""
