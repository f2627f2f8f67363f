"""PyTorch's answers, live or recorded: `torch = judge("torch")` is what a test compares with.

With PyTorch installed `judge` returns the real module. Without it, it returns a stand-in that repeats what the real one answered when
`python -m tests.answers record tests/ops` ran the same test: every question a test asks (a call, an attribute, an operator) goes to a
tape of that test, and what comes back as plain data (numbers, strings, arrays, exceptions) stands on the tape. Nothing is computed,
so a test that asks something else than what was recorded is told so: each question, its data included, is hashed into a running
digest, and a digest that differs fails the test as stale. A test without a tape is skipped, as it was without PyTorch.

values.py   plain data: to JSON and arrays, and to a digest
stand_in.py the object that stands for something of PyTorch's
tape.py     the questions and answers of one test, while recording and while replaying
store.py    files under recorded/: one for each file of tests, and the names that PyTorch has
programs.py programs as text, with one answer each
plugin.py   pytest's hooks: which test is running
"""

from __future__ import annotations

from .session import judge, live, told

__all__ = ["judge", "live", "told"]
