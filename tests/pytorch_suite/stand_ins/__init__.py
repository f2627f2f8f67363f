"""Small stand-ins for PyTorch's internal test helpers, loaded under the names `torch.testing._internal.*` with either library."""
