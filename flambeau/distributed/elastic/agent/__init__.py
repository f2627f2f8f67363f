"""Agents: they start workers, watch them, and start them again."""
