"""Functions that cannot be recorded whole: Python runs the statements that cannot be, and the parts between them are compiled."""
