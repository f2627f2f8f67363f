"""Forms in which requests are wrapped: taken off before the handler, put on after it."""
