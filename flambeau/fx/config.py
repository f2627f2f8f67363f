"""Settings of graph transformations."""

# Whether a pass that changes a graph must not change what it prints; kept for programs that set it.
disable_progress = True
verbose_progress = False
