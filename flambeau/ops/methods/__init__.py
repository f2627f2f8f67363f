"""Tensors as Python objects: attributes, operators, protocols."""
