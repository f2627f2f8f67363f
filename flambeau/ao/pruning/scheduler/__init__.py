"""Schedulers of the share of zeros."""
