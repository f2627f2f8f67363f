"""Machinery of operators: how they are declared, planned, recorded and called: what every room of operators stands on."""
