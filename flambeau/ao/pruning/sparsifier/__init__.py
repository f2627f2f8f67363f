"""Sparsifiers, which choose the zeros."""
