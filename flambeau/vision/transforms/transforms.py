"""Classic transforms under the name of torchvision's module."""

from .basic import *  # noqa: F403
from .geometric import *  # noqa: F403
from .photometric import *  # noqa: F403
from .v2 import _transform

_setup_size = _transform.setup_size  # libraries take it from here
