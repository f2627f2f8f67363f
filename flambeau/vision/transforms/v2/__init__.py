"""Transforms, second generation."""

from . import functional as functional
