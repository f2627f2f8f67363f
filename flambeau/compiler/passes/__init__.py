"""Passes over a recording's steps. Each makes it cheaper and changes no result; `pipeline` runs them in order."""
