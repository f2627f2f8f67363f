"""Schedulers of the sparsity level."""
