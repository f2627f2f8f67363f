"""Tensors with named dimensions: how operators propagate names, and the methods for names."""
