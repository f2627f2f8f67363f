"""Exceptions that are sent from a worker to the loader's process."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import NoReturn


class _PlainText(str):
    """Text whose repr has no quotes: KeyError shows the repr of its argument, which would make a traceback one long line."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Failure:
    """An exception sent to the loader's process; `kind` is None if its class cannot be pickled."""

    kind: type[BaseException] | None
    name: str
    where: str
    text: str

    @staticmethod
    def of(problem: BaseException, where: str) -> Failure:
        kind: type[BaseException] | None = type(problem)
        try:
            pickle.dumps(kind)
        except Exception:  # a class defined inside a function, say
            kind = None
        return Failure(kind, type(problem).__name__, where, "".join(traceback.format_exception(problem)))

    def reraise(self) -> NoReturn:
        """Raise the same type of exception here, with the worker's traceback in its message."""
        message = f"Caught {self.name} {self.where}.\nOriginal {self.text}"
        raise self._rebuild_exception(_PlainText(message) if self.kind is KeyError else message)

    def _rebuild_exception(self, message: str) -> BaseException:
        try:
            if self.kind is not None and getattr(self.kind, "message", None):
                return self.kind(message=message)  # type: ignore[call-arg]
            return self.kind(message) if self.kind is not None else RuntimeError(message)
        except Exception:  # its constructor takes other arguments
            return RuntimeError(message)
