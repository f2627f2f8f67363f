"""Imitations of PyTorch's oddities: former names, older constructors, rarely used methods."""

from ..ops.machinery.binding import bind_methods
from . import former_names, legacy  # noqa: F401
from .rare_methods import bind_rare_methods

former_names.install()
bind_methods()  # those of `legacy`
bind_rare_methods()
