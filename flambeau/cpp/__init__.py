"""Out of Python: what C++ programs and operators written in C++ need (headers, CMake files), and models as native libraries."""

from .. import library as _library  # noqa: F401  the whole rooms before their parts: see naming.load
from .. import optim as _optim  # noqa: F401
from .. import utils as _utils  # noqa: F401
