"""Passes for graphs of any operator set."""
