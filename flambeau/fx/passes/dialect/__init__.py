"""Passes for graphs of a particular operator set."""
