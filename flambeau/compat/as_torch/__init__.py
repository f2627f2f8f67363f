"""Flambeau in place of PyTorch, at the request of a program or its user: in this process, in those it starts, in an environment."""
