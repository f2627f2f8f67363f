"""Keys for clients: created at each start, stored in key_file.json, valid for a limited time."""

from __future__ import annotations

import datetime
import hmac
import json
import re
import secrets
from pathlib import Path

from ..core.ownership import write_own
from .errors import InvalidKeyException

INFERENCE, MANAGEMENT, TOKEN_API = "inference", "management", "token"
_BEARER = re.compile(r"Bearer\s+(\S+)\Z")
_REFUSAL = "Token Authorization failed. Token either incorrect, expired, or not provided correctly"


class Tokens:
    """The keys for inference, for management, and for requesting new ones; checks the keys of requests."""

    def __init__(self, enabled: bool, minutes: float = 60.0, file: Path = Path("key_file.json")):
        self.enabled, self.minutes, self.file = enabled, minutes, file
        self._keys: dict[str, str] = {}
        self._expires: dict[str, datetime.datetime] = {}
        if enabled:
            self._keys[TOKEN_API] = secrets.token_urlsafe(24)
            self._renew(MANAGEMENT)
            self._renew(INFERENCE)
            self._write()

    def _renew(self, kind: str) -> None:
        self._keys[kind] = secrets.token_urlsafe(24)
        self._expires[kind] = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=self.minutes)

    def _write(self) -> None:
        content = {
            kind: {"key": self._keys[kind], "expiration time": self._expires[kind].isoformat().replace("+00:00", "Z")}
            for kind in (MANAGEMENT, INFERENCE)
        }
        text = json.dumps({**content, "API": {"key": self._keys[TOKEN_API]}}, indent=2)
        write_own(self.file, text.encode("ascii"))

    def renew(self, kind: str) -> None:
        """Make a new key; the old one becomes invalid."""
        if kind not in (MANAGEMENT, INFERENCE):
            raise InvalidKeyException(_REFUSAL)
        self._renew(kind)
        self._write()

    def check(self, header: str | None, kind: str) -> None:
        """Raise unless the Authorization header has the key of this kind, still valid."""
        if not self.enabled:
            return
        match = _BEARER.match(header or "")
        expires = self._expires.get(kind)
        valid = match is not None and hmac.compare_digest(match[1].encode(), self._keys[kind].encode())
        if not valid or (expires is not None and datetime.datetime.now(datetime.timezone.utc) > expires):
            raise InvalidKeyException(_REFUSAL)

    def close(self) -> None:
        if self.enabled:
            self.file.unlink(missing_ok=True)
