"""The classic transforms under the name of torchvision's module."""

from .basic import *  # noqa: F403
from .geometric import *  # noqa: F403
from .photometric import *  # noqa: F403
