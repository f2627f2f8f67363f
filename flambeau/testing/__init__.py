"""Test helpers: compare results (`assert_close`) and make inputs (`make_tensor`).

>>> import flambeau
>>> flambeau.testing.assert_close(flambeau.ones(2) / 3, flambeau.full((2,), 1 / 3))
"""

from .comparison import assert_allclose, assert_close
from .creation import make_tensor
from .file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]
