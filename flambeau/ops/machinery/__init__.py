"""Machinery of operators: how they are declared, planned, recorded and called."""
