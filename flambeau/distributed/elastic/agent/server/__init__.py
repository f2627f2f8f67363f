"""The agent of one machine."""

from .agent import Agent, WorkerSpec

__all__ = ["Agent", "WorkerSpec"]
