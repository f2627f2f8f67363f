"""Operators that are a formula per element."""
