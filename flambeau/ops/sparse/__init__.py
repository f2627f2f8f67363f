"""COO and compressed tensors: their parts, and the operators on them."""
