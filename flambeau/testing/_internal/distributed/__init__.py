"""Helpers for tests of programs for many ranks."""
