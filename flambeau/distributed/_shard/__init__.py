"""Where programs look for PyTorch's former spread tensors. DTensor took their place; there are none here."""
