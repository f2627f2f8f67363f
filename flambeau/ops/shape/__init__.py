"""The same elements in other shapes and orders: views, joins, repeats, borders."""
