"""TorchServe's Python names, for handlers written for it: in a worker, `import ts` gives this package."""

from .version import __version__

__all__ = ["__version__"]
