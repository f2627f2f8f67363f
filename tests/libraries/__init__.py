"""Other people's libraries, run unmodified under PyTorch and under Flambeau: see docs/libraries.md."""
