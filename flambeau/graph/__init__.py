"""One graph of operator calls: what a function did, written once, for whoever rewrites, runs, prints or exports it.

`record` runs a function and returns its `Program`; `check` says what is wrong with one; `text` prints it; `Replay` runs it."""
