"""Operators that return the same elements in other shapes and orders: views, joins, repeats, borders."""
