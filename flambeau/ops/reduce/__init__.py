"""Operators that reduce or scan dimensions: sums, extremes, norms, statistics, scans, counts."""
