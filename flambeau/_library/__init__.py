"""PyTorch's private room of user-defined operators, by the names that libraries import from it."""
