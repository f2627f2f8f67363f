"""Tensors with named dimensions: how operators propagate names, and what tensors can do with theirs."""
