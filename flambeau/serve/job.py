"""Job: a request sent to a worker, and the delivery of its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeAlias

Parameters: TypeAlias = list[tuple[str, str, bytes]]  # of a request: name, content type, value


class Job:
    """A request to a worker, and the receiver of its answer: `reply` for parts and answers, `fail` for errors."""

    __slots__ = ("id", "headers", "parameters", "describe", "created", "scheduled", "expires", "sequence", "cached")

    def __init__(
        self, request_id: str, headers: dict[str, str], parameters: Parameters, *, describe: bool = False,
        sequence: str = "", client_timeout_ms: int = 0,
    ):  # fmt: skip
        self.id = request_id
        self.headers = headers
        self.parameters = parameters
        self.describe = describe
        self.sequence = sequence
        self.created = self.scheduled = time.perf_counter()
        self.expires = self.created + client_timeout_ms / 1000 if client_timeout_ms > 0 else float("inf")
        self.cached = False  # the worker already has the parameters: continuous batching sends them once

    def reply(self, status: int, phrase: str, kind: str, headers: dict[str, str], body: bytes, more: bool) -> None:
        """Deliver an answer, or a part of one if more follows."""
        raise NotImplementedError

    def fail(self, status: int, message: str) -> None:
        """End the job with an error."""
        raise NotImplementedError

    def is_open(self) -> bool:
        """Return whether the client still waits for the answer."""
        raise NotImplementedError

    def may_wait(self) -> bool:
        """Return whether other jobs should go first: the client has closed its sending side, so it may have disconnected."""
        return False

    def answer(self, item: Any, body: bytes) -> bool:
        """Pass a worker's answer on; return whether further parts follow."""
        _, content_type, status, phrase, headers, _ = item
        more = headers.get("ts_stream_next") == "true"
        if time.perf_counter() <= self.expires:
            self.reply(status, phrase, content_type, headers, body, more)
        return more


class CallbackJob(Job):
    """Job that passes its answers to callback functions."""

    __slots__ = ("reply", "fail", "is_open")

    def __init__(
        self, request_id: str, headers: dict[str, str], parameters: Parameters,
        reply: Callable[[int, str, str, dict[str, str], bytes, bool], None], fail: Callable[[int, str], None],
        is_open: Callable[[], bool], **options: Any,
    ):  # fmt: skip
        super().__init__(request_id, headers, parameters, **options)
        self.reply = reply  # type: ignore[assignment,method-assign]
        self.fail = fail  # type: ignore[assignment,method-assign]
        self.is_open = is_open  # type: ignore[method-assign]
