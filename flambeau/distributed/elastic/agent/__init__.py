"""Agents: they start, monitor and restart workers."""
