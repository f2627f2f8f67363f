"""`_remote_device`: a device of a worker, as "trainer0/cuda:0", "rank:1/cpu", "ps0" or "cpu"."""

from __future__ import annotations

from typing import Any

from ..core.device import device as Device


class _remote_device:
    """A worker (by name or rank, or this one) and one of its devices."""

    def __init__(self, remote_device: str | Device) -> None:
        self._worker_name: str | None = None
        self._rank: int | None = None
        if isinstance(remote_device, Device):
            self._device: Device = remote_device
            return
        problem = ValueError(
            f"Could not parse remote_device: {remote_device}. The valid format is '<workername>/<device>' or"
            " 'rank:<rank>/<device>' or '<device>'"
        )
        if not isinstance(remote_device, str):
            raise TypeError(f"Invalid type for remote_device: {type(remote_device)}")
        fields = remote_device.split("/")
        where, place = (fields[0], "cpu") if len(fields) == 1 else (fields[0], fields[-1])
        if len(fields) == 1 and self._is_device(where):
            where, place = "", where
        elif len(fields) > 2 or not where or not self._is_device(place):
            raise problem
        self._device = Device(place)
        if where.startswith("rank:"):
            if not where[5:].isdigit():
                raise problem
            self._rank = int(where[5:])
        elif where:
            self._worker_name = where

    @staticmethod
    def _is_device(text: str) -> bool:
        try:
            Device(text)
        except (RuntimeError, ValueError):
            return False
        return True

    def worker_name(self) -> str | None:
        return self._worker_name

    def rank(self) -> int | None:
        return self._rank

    def device(self) -> Device:
        return self._device

    def __repr__(self) -> str:
        if self._worker_name is not None:
            return f"{self._worker_name}/{self._device}"
        return f"rank:{self._rank}/{self._device}" if self._rank is not None else str(self._device)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _remote_device) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))
