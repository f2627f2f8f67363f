"""The questions of one test and PyTorch's answers: written while recording, read while replaying."""

from __future__ import annotations

import base64
import hashlib
import warnings
from typing import Any

import pytest

COMMAND = "python -m tests.answers record"


class Tape:
    """Answers in order, a byte of the running digest for each question, and how many objects were named."""

    def __init__(self, key: str, row: dict | None = None) -> None:
        self.key, self.answers = key, [] if row is None else row["answers"]
        self.checks = bytearray(base64.b85decode(row["checks"]) if row else b"")
        self.recorded, self.place, self.objects = row is not None, 0, 0
        self.touched = False
        self.digest = hashlib.blake2b(digest_size=8)
        self.final = row["digest"] if row else None

    def __bool__(self) -> bool:
        return True

    def name(self) -> str:
        """A name for one more object."""
        self.objects += 1
        return f"{self.key}#{self.objects}"

    def hashed(self, question: str) -> int:
        self.digest.update(question.encode("utf-8", "surrogatepass"))
        return self.digest.copy().digest()[0]

    def write(self, question: str, answer: Any) -> None:
        self.checks.append(self.hashed(question))
        self.answers.append(answer)

    def read(self, question: str) -> Any:
        """The answer to the next question, which must be the one that was recorded."""
        self.touched = True
        if not self.recorded:
            pytest.skip(f"PyTorch's answers to this test are not recorded and it is not installed ({COMMAND})")
        if self.place >= len(self.answers):
            self.stale(f"it asks more than was recorded: {question[:200]}")
        if self.hashed(question) != self.checks[self.place]:
            self.stale(f"question {self.place + 1} differs from the recorded one: {question[:200]}")
        self.place += 1
        return self.answers[self.place - 1]

    def finish(self) -> None:
        """Fail if what was asked differs from what was recorded in a way that no single check has shown."""
        if self.recorded and self.digest.hexdigest() != self.final:
            self.stale("it asks less than was recorded, or something else")

    def stale(self, reason: str) -> None:
        file = self.key.partition("::")[0]
        pytest.fail(
            f"the recorded answers of PyTorch are of another test or other inputs: {reason}\n{COMMAND} {file}",
            pytrace=False,
        )

    def row(self) -> dict:
        return {
            "answers": self.answers,
            "checks": base64.b85encode(bytes(self.checks)).decode(),
            "digest": self.digest.hexdigest(),
        }


def warned(caught: list) -> list:
    """Warnings as [category, text], to be given once more."""
    return [[w.category.__name__, str(w.message)] for w in caught]


def warn_again(caught: list) -> None:
    for category, text in caught:
        kind = (
            getattr(__builtins__, category, None) if not isinstance(__builtins__, dict) else __builtins__.get(category)
        )
        warnings.warn_explicit(text, kind or UserWarning, "torch", 1)
