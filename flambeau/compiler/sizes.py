"""Decisions on which sizes of arguments are worth a recording of their own, if no program serves many sizes (see `ranges`).

Such a recording is for one set of sizes, and making one takes as long as ten to twenty calls. So a further size is recorded at once only
while earlier recordings are used; otherwise it has to recur first. Beyond the first recordings each one has to be earned by native calls. A
function whose sizes change in every call rests: its recordings are forgotten, and it runs uncompiled for some calls."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..core import naming
from .state.arguments import Arguments

if TYPE_CHECKING:
    from .ranges import Range, Ranges

ranges = naming.late("compiler.ranges")

KEPT = 64  # sizes that are remembered: of more than these, the oldest are forgotten
# For families, whose recordings cost little: sizes that get a full recording nevertheless, and sizes that are remembered.
FEW, MANY = 4, 512
UNUSED = 2  # recordings that may be waiting for their first use
PATIENCE = 3  # eager calls of a further size before it is recorded, otherwise
FREE = 12  # recordings that need not be earned; after a rest, `UNUSED`
EARNED = 8  # native calls for each further one
IDLE = 64  # consecutive eager calls, because of their sizes, before a rest
REST = 256  # calls of the first rest; each one is twice as long as that before it
DOUBLED = 6  # times


class Sizes:
    """Calls whose arguments differ only in their sizes: their keys, and how much their recordings have been used."""

    def __init__(self, free: int = FREE) -> None:
        self.keys: list[tuple] = []
        self.free = free
        self.made = 0  # recordings
        self.served = 0  # native calls of those that are forgotten
        self.wasted = 0  # those that were forgotten before they were used
        self.family: Any = None  # what recordings on a GPU have in common, where more sizes cost little

    @functools.cached_property
    def ranges(self) -> Ranges:
        """Return the programs for many sizes: none before a second size has come."""
        return ranges.Ranges()

    def ranged(self) -> list[Range]:
        """Return the programs for many sizes that have been made."""
        return self.ranges.known if "ranges" in self.__dict__ else []

    def recordings(self, found: dict[tuple, Any]) -> list[Any]:
        return [r for k in self.recorded(found) for r in found[k]]

    def recorded(self, found: dict[tuple, Any]) -> list[tuple]:
        """Return the keys that have recordings of their own."""
        return [k for k in self.keys if type(found.get(k)) is list]

    def newest(self, found: dict[tuple, Any]) -> tuple | None:
        """Return the key that was last added, of those that have recordings."""
        return next(reversed(self.recorded(found)), None)

    def common(self, found: dict[tuple, Any], given: Arguments) -> Any:
        """Return the family of recordings that fits the present state, if a further recording of it costs little; None if not, or if there
        are so few sizes that each can have a full recording."""
        if len(self.keys) <= FEW or self.wasted >= MANY:
            return None
        if self.family is None or not self.family.fits():
            known = (r.family for r in self.recordings(found) if r.family is not None and not r.fits(given))
            self.family = next((family for family in known if family.fits()), None)
        return self.family

    def affords(self) -> bool:
        """Return whether a size that is used often may have a full recording, and count it."""
        if self.made >= self.free:
            return False
        self.made += 1
        return True

    def add(self, key: tuple, found: dict[tuple, Any]) -> Waiting:
        """Add a key; if there are too many, drop the oldest without a recording, or the oldest of all."""
        self.keys.append(key)
        found[key] = waiting = Waiting(self)
        if len(self.keys) > (KEPT if self.family is None else MANY):
            bare = (k for k in self.keys[:-1] if type(found.get(k)) is not list)
            oldest = next(bare, self.keys[0])
            self.keys.remove(oldest)
            gone = found.pop(oldest, None)
            for recorded in gone if type(gone) is list else ():
                self.served += recorded.calls
                self.wasted += not recorded.calls
        return waiting


class Waiting:
    """A size that has no recording yet."""

    def __init__(self, sizes: Sizes):
        self.sizes = sizes
        self.left = 0  # eager calls
        self.patient = False  # whether it has waited because others were not used
        self.times = 0  # that it was asked for, where there are many sizes

    def is_new(self) -> bool:
        """Return whether the size occurs for the first time: only one that recurs is recorded."""
        self.times += 1
        return self.times == 1

    def ready(self, found: dict[tuple, Any]) -> bool:
        """Return whether this call is to be recorded."""
        if self.left:
            self.left -= 1
            return False
        known = self.sizes.recordings(found)
        served = self.sizes.served + sum(r.calls for r in known)
        if self.sizes.made >= self.sizes.free + served // EARNED:
            return False
        if self.patient or self.sizes.wasted + sum(not r.calls for r in known) < UNUSED:
            return True
        self.patient, self.left = True, PATIENCE - 1
        return False


class Idling:
    """Counter of consecutive calls that were not native because of their sizes; decides when a function stops recording, and for how long."""

    def __init__(self) -> None:
        self.calls = 0
        self.native = 0  # calls when these were counted last
        self.resting = 0  # calls that are left of a rest
        self.rests = 0

    def one_more(self, native: int) -> bool:
        """Count a call that runs eagerly; return whether it is time to rest. `native` are the native calls up to now."""
        if native != self.native:
            self.native, self.calls = native, 0
        self.calls += 1
        if self.calls < IDLE:
            return False
        self.resting = REST << min(self.rests, DOUBLED)
        self.rests += 1
        self.calls = 0
        return True
