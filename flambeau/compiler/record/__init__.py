"""Recording: a function runs eagerly, and its native calls become steps over buffers, with what it returned and left behind."""
