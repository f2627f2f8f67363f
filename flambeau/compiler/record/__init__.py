"""Recording: a function runs eagerly, and its native calls become steps over buffers, with its results and side effects."""
