"""Imitations of PyTorch's oddities: former names, older constructors, rarely used methods."""

from ..ops.machinery.binding import bind_methods
from . import former_names, legacy  # noqa: F401
from .odd_methods import bind_odd_methods

former_names.install()
bind_methods()  # those of `legacy`
bind_odd_methods()
