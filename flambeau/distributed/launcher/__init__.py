"""Launching of workers from a program: `LaunchConfig` and `elastic_launch`."""

from .api import LaunchConfig, elastic_launch, launch_agent

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]
