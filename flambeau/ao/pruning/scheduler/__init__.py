"""Who says how many zeros there are to be."""
