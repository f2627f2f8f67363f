"""Graphs of operator calls: a function's calls, recorded once, for passes, replay, printing and export.

`record` runs a function and returns its `Program`; `check` says what is wrong with one; `text` prints it; `Replay` runs it."""
