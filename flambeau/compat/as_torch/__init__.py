"""Flambeau in the place of PyTorch, where a program or its user asks for it: in this process, in those it starts, in an environment."""
