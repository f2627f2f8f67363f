"""The store of the backend "fake", which is Flambeau's own: the wheel's file registers one that is written in C++."""

from flambeau.testing._internal.distributed.fake_pg import FakeStore

__all__ = ["FakeStore"]
