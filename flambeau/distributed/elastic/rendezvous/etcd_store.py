"""Store on an etcd server (3.4 or newer, through its JSON gateway): agents use it for the rendezvous, and none has to serve it.

Keys of a job expire some hours after its last agent."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from ...errors import DistNetworkError, DistStoreError
from ...store import DEFAULT_TIMEOUT, Store, as_bytes

_LEASE_SECONDS = 7200  # seconds
_PAUSE = 0.1


def _base64(data: str | bytes) -> str:
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


class EtcdStore(Store):
    """Store of keys under `prefix` of the etcd server at `endpoint` ("host:port")."""

    def __init__(
        self, endpoint: str, prefix: str = "/torchelastic/", timeout: timedelta = DEFAULT_TIMEOUT, protocol: str = "http",
        context: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._timeout = timeout
        self.address, self.prefix, self._context = f"{protocol}://{endpoint}", prefix, context
        self._lease = self._post("lease/grant", TTL=_LEASE_SECONDS)["ID"]
        self._renewed = time.monotonic()

    def _post(self, path: str, **body: Any) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.address}/v3/{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=self._context) as answer:
                return json.loads(answer.readline())  # what is a stream has one line for each message
        except (OSError, ValueError) as problem:
            reason = problem.read()[:300] if isinstance(problem, urllib.error.HTTPError) else problem
            raise DistNetworkError(f"etcd at {self.address}: {path}: {reason!r}") from None

    def _key(self, key: str) -> str:
        return _base64(self.prefix + key)

    def _put_request(self, key: str, value: bytes) -> dict[str, Any]:
        """Return a request that writes a key under this process's lease, which is renewed if necessary."""
        if time.monotonic() - self._renewed > _LEASE_SECONDS / 4:
            self._post("lease/keepalive", ID=self._lease)
            self._renewed = time.monotonic()
        return {"key": self._key(key), "value": _base64(value), "lease": self._lease}

    def _read_revision(self, key: str) -> tuple[bytes | None, str]:
        """Return the value of a key, and its revision."""
        found = self._post("kv/range", key=self._key(key)).get("kvs")
        if not found:
            return None, "0"
        return base64.b64decode(found[0].get("value", "")), found[0]["mod_revision"]

    def _replace(self, key: str, revision: str, value: bytes) -> bool:
        """Write a key if it has not changed since `revision` (0: if it does not exist); return whether it was written."""
        compare = {"key": self._key(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision}
        done = self._post("kv/txn", compare=[compare], success=[{"request_put": self._put_request(key, value)}])
        return bool(done.get("succeeded"))

    def set(self, key: str, value: str | bytes) -> None:
        self._post("kv/put", **self._put_request(key, as_bytes(value)))

    def get(self, key: str) -> bytes:
        self.wait([key])
        value = self._read_revision(key)[0]
        if value is None:
            raise DistStoreError(f"{key} was deleted meanwhile")
        return value

    def add(self, key: str, amount: int) -> int:
        while True:
            value, revision = self._read_revision(key)
            total = int(value or b"0") + amount
            if self._replace(key, revision, str(total).encode()):
                return total

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        while True:
            value, revision = self._read_revision(key)
            if value != expected and not (value is None and not expected):
                return expected if value is None else value
            if self._replace(key, revision, desired):
                return desired

    def append(self, key: str, value: str | bytes) -> None:
        while True:
            held, revision = self._read_revision(key)
            if self._replace(key, revision, (held or b"") + as_bytes(value)):
                return

    def check(self, keys: Sequence[str]) -> bool:
        return all(self._read_revision(key)[0] is not None for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + limit.total_seconds()
        while not self.check(keys):
            if time.monotonic() > deadline:
                raise DistStoreError(
                    f"wait timeout after {int(limit.total_seconds() * 1000)}ms, keys: {', '.join(keys)}"
                )
            time.sleep(_PAUSE)

    def delete_key(self, key: str) -> bool:
        return int(self._post("kv/deleterange", key=self._key(key)).get("deleted", 0)) > 0

    def list_keys(self) -> list[str]:
        first = self.prefix.encode()
        last = first[:-1] + bytes([first[-1] + 1])  # the first key behind all that begin with the prefix
        found = self._post("kv/range", key=_base64(first), range_end=_base64(last), keys_only=True).get("kvs", [])
        return [base64.b64decode(entry["key"]).decode()[len(self.prefix) :] for entry in found]

    def num_keys(self) -> int:
        return len(self.list_keys())


def create_store(params: Any) -> EtcdStore:
    """Return the store of a job; TLS settings as for PyTorch's etcd rendezvous: `protocol`, `cacert`, `cert` and `key` in --rdzv-conf."""
    protocol, context = params.get("protocol", "http"), None
    if protocol == "https":
        context = ssl.create_default_context(cafile=params.get("cacert"))
        if params.get("cert"):
            context.load_cert_chain(params.get("cert"), params.get("key"))
    elif protocol != "http":
        raise ValueError("The protocol must be HTTP or HTTPS.")
    timeout = timedelta(seconds=params.get_as_int("read_timeout", 60) or 60)
    return EtcdStore(params.endpoint or "localhost:2379", "/torchelastic/", timeout, protocol, context)
