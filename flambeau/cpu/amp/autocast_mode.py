"""The older names of autocast on the CPU; new programs use `flambeau.amp`."""

from ...amp.older import OlderAutocast

__all__ = ["autocast"]


class autocast(OlderAutocast):
    """`flambeau.amp.autocast("cpu", ...)`."""

    kind = "cpu"
