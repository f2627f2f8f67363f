"""Passes that are scheduled, checked and composed."""
