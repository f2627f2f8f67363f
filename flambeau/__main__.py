"""`python -m flambeau script.py arguments...`: run a program written for PyTorch with Flambeau."""

import sys

from .compat.as_torch.launch import run

if __name__ == "__main__":
    run(sys.argv[1:])
