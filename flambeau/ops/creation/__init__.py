"""New tensors: filled, counted, converted, or made of other libraries' data."""
