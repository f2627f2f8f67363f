"""The batching rules, one module per family of operators. Importing this puts them into the records."""

from . import creation, indexing, layers, losses, products, random, reductions, shapes

__all__ = ["creation", "indexing", "layers", "losses", "products", "random", "reductions", "shapes"]
