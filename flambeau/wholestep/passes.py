"""Passes over a graph: each a small function that makes it cheaper and changes no result."""

from __future__ import annotations

from .graph import Graph


def run(graph: Graph, results: set[int]) -> list[tuple[str, str]]:
    """All passes in order. What the graph looked like after each, by name."""
    return [("recorded", graph.text())]


__all__ = ["run"]
