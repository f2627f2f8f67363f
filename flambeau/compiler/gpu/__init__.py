"""Compiled functions on a GPU: programs of operator calls, captured into CUDA graphs."""
