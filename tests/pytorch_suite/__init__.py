"""PyTorch's own test files, run on Flambeau: `python -m tests.pytorch_suite /path/to/test_view_ops.py`.

The files are not part of this repository: they come from the directory `test` of a checkout of PyTorch. They import helpers that are
internal to PyTorch (`torch.testing._internal`); the directory `stand_ins` holds small ones of our own, used with both libraries, so that
the names of the tests and what they demand are the same.

    python -m tests.pytorch_suite test_indexing.py --torch --json baseline.json    what the real PyTorch passes
    python -m tests.pytorch_suite test_indexing.py --baseline baseline.json        only what fails here and passes there
    python -m tests.pytorch_suite test_indexing.py -k "setitem and not cuda" -v    some of them, with tracebacks
"""
