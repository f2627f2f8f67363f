"""Who chooses the zeros."""
