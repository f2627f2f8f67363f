"""Functions that cannot be recorded whole: statements that cannot are run by Python, the parts between them are compiled."""
