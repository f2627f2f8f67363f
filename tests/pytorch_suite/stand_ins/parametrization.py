"""Tests written once and made for many values: as other projects' tests get it from Flambeau."""

from flambeau.testing._internal.parametrization import *  # noqa: F403
from flambeau.testing._internal.parametrization import _TestParametrizer  # noqa: F401
