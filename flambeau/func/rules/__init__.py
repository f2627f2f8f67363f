"""The batching rules, one module per family of operators. Importing this package adds them to the records."""

from . import creation, indexing, layers, losses, products, random, reductions, shapes

__all__ = ["creation", "indexing", "layers", "losses", "products", "random", "reductions", "shapes"]
