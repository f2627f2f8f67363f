"""The built-in handlers."""
