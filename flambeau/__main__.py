"""`python -m flambeau script.py arguments...`: a program written for PyTorch, run with Flambeau."""

import sys

from .launch import run

if __name__ == "__main__":
    run(sys.argv[1:])
