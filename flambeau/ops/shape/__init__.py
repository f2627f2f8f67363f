"""Operators that give the same elements in other shapes and orders: views, joins, repeats, borders."""
