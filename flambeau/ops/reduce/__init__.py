"""Operators that fold dimensions: sums, extremes, norms, statistics, scans, counts."""
