"""Metrics a handler reports."""
