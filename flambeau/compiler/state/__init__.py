"""The Python state that a compiled function reads: seen by an observer while it runs, compared by guards before a recording runs."""
