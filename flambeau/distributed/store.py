"""Stores: keys and values that all processes of a job share, and by which they find each other.

>>> store = HashStore()
>>> store.set("key", "value")
>>> store.get("key")
b'value'
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from ..core.locks import new_lock
from ..core.ownership import refuse_planted
from .errors import DistStoreError, QueueEmptyError

DEFAULT_TIMEOUT = timedelta(seconds=300)


def as_bytes(value: Any, method: str = "set") -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"{method}(): incompatible function arguments: expected str or bytes as value, got {type(value).__name__}"
    )


class Store:
    """Interface of all stores. A subclass in Python needs set, get, add, check and wait at least."""

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    @property
    def timeout(self) -> timedelta:
        """Default time to wait for a key."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """Return the value of a key; waits until there is one."""
        raise NotImplementedError

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which starts at 0; return the sum."""
        raise NotImplementedError

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Set the value if it equals the expected one (or there is none and "" is expected), and return the value afterwards."""
        raise NotImplementedError

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys have values."""
        raise NotImplementedError

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values."""
        raise NotImplementedError

    def delete_key(self, key: str) -> bool:
        raise NotImplementedError

    def num_keys(self) -> int:
        raise NotImplementedError

    def list_keys(self) -> list[str]:
        raise NotImplementedError

    def append(self, key: str, value: str | bytes) -> None:
        """Append to a value."""
        raise NotImplementedError

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        """Return whether append, multi_get and multi_set are single operations of the store."""
        return False

    def queue_push(self, key: str, value: str | bytes) -> None:
        raise NotImplementedError("queue support is not implemented.")

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        raise NotImplementedError("queue support is not implemented.")

    def queue_len(self, key: str) -> int:
        raise NotImplementedError("queue support is not implemented.")

    def clone(self) -> Store:
        """Return this store, for another thread."""
        return self

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Wait until `world_size` processes have called this with the same key."""
        if self.add(f"{key}/count", 1) == world_size:
            self.set(f"{key}/all", "1")
        self.wait([f"{key}/all"], timeout or self.timeout)


class Table:
    """Thread-safe keys and values in this process, the contents of a HashStore and of a TCPStore's server."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = defaultdict(deque)
        self.changed = threading.Condition(new_lock())

    def _wait_for(self, ready: Callable[[], Any], seconds: float) -> bool:
        """Wait, with the lock held, until `ready()` is true; return whether it is."""
        return bool(self.changed.wait_for(ready, seconds))

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str, seconds: float) -> bytes | None:
        with self.changed:
            return self.values[key] if self._wait_for(lambda: key in self.values, seconds) else None

    def wait(self, keys: Sequence[str], seconds: float) -> bool:
        with self.changed:
            return self._wait_for(lambda: all(key in self.values for key in keys), seconds)

    def check(self, keys: Sequence[str]) -> bool:
        with self.changed:
            return all(key in self.values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self.changed:
            total = int(self.values.get(key, b"0")) + amount
            self.values[key] = str(total).encode()
            self.changed.notify_all()
            return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        with self.changed:
            held = self.values.get(key)
            if held == expected or (held is None and not expected):
                self.values[key] = desired
                self.changed.notify_all()
                return desired
            return expected if held is None else held

    def append(self, key: str, value: bytes) -> None:
        with self.changed:
            self.values[key] = self.values.get(key, b"") + value
            self.changed.notify_all()

    def delete(self, key: str) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None

    def push(self, key: str, value: bytes) -> None:
        with self.changed:
            self.queues[key].append(value)
            self.changed.notify_all()

    def pop(self, key: str, seconds: float) -> bytes | None:
        with self.changed:
            return self.queues[key].popleft() if self._wait_for(lambda: self.queues.get(key), seconds) else None

    def length(self, key: str) -> int:
        with self.changed:
            return len(self.queues.get(key, ()))


class HashStore(Store):
    """A store for the threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()

    def set(self, key: str, value: str | bytes) -> None:
        self._table.set(key, as_bytes(value))

    def get(self, key: str) -> bytes:
        return self._value_or_timeout(self._table.get(key, self._timeout.total_seconds()))

    def _value_or_timeout(self, value: bytes | None) -> bytes:
        if value is None:
            raise DistStoreError("Wait timeout")
        return value

    def add(self, key: str, amount: int) -> int:
        if not isinstance(amount, int):
            raise TypeError(f"add(): incompatible function arguments: expected an int, got {type(amount).__name__}")
        return self._table.add(key, amount)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        return self._table.compare_set(key, as_bytes(expected_value), as_bytes(desired_value))

    def check(self, keys: Sequence[str]) -> bool:
        return self._table.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        if not self._table.wait(keys, (timeout or self._timeout).total_seconds()):
            raise DistStoreError("Wait timeout")

    def delete_key(self, key: str) -> bool:
        return self._table.delete(key)

    def num_keys(self) -> int:
        return len(self._table.values)

    def list_keys(self) -> list[str]:
        return list(self._table.values)

    def append(self, key: str, value: str | bytes) -> None:
        self._table.append(key, as_bytes(value))

    def has_extended_api(self) -> bool:
        return True

    def queue_push(self, key: str, value: str | bytes) -> None:
        self._table.push(key, as_bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        value = self._table.pop(key, self._timeout.total_seconds() if block else 0)
        if value is None and not block:
            raise QueueEmptyError("queue is empty")
        return self._value_or_timeout(value)

    def queue_len(self, key: str) -> int:
        return self._table.length(key)


class PrefixStore(Store):
    """Store that adds a prefix to every key of another store, so that one serves many groups."""

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self._store = prefix, store

    @property
    def underlying_store(self) -> Store:
        return self._store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        inner = self._store
        while isinstance(inner, PrefixStore):
            inner = inner._store
        return inner

    @property
    def timeout(self) -> timedelta:
        return self._store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self._store.set_timeout(timeout)

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def num_keys(self) -> int:
        return self._store.num_keys()

    def list_keys(self) -> list[str]:
        return [key[len(self.prefix) + 1 :] for key in self._store.list_keys() if key.startswith(f"{self.prefix}/")]

    def has_extended_api(self) -> bool:
        return self._store.has_extended_api()

    def clone(self) -> PrefixStore:
        return PrefixStore(self.prefix, self._store.clone())


def _delegate_with_prefix(name: str) -> Callable[..., Any]:
    """Return a method that calls that of the underlying store, with the prefix before the key or before all keys."""

    @functools.wraps(getattr(Store, name))
    def method(self: PrefixStore, keys: Any, *args: Any, **kwargs: Any) -> Any:
        found = self._key(keys) if isinstance(keys, str) else [self._key(key) for key in keys]
        return getattr(self._store, name)(found, *args, **kwargs)

    return method


for _name in (
    "add", "append", "check", "compare_set", "delete_key", "get", "multi_get", "multi_set", "queue_len", "queue_pop", "queue_push", "set",
    "wait",
):  # fmt: skip
    setattr(PrefixStore, _name, _delegate_with_prefix(_name))


class FileStore(Store):
    """A store in a file that all processes can access; every change is appended as a record, written under a lock.

    The last of `world_size` processes to close it removes the file."""

    _RECORD = struct.Struct("<II")
    _DELETED = 0xFFFFFFFF

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self.path = os.fspath(file_name)
        self._world_size = world_size
        self._values: dict[str, bytes] = {}
        self._read_up_to = 0
        self._guard = new_lock()
        self._owner = os.getpid()
        refuse_planted(self.path, "a store of ranks")
        with self._locked():
            pass  # the file exists from now on
        refuse_planted(self.path, "a store of ranks")  # nor has another process created it meanwhile

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        """Context manager: yield the file, locked, with all its records read."""
        with self._guard:
            while True:
                file = open(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600), "r+b")  # noqa: SIM115  closed below
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.path.exists(self.path) and os.path.samestat(os.fstat(file.fileno()), os.stat(self.path)):
                    break
                file.close()  # the one that held the lock has removed the file
            with file:
                self._catch_up(file)
                yield file

    def _catch_up(self, file: Any) -> None:
        file.seek(self._read_up_to)
        data, at = file.read(), 0
        while at + self._RECORD.size <= len(data):
            key_size, value_size = self._RECORD.unpack_from(data, at)
            start = at + self._RECORD.size
            end = start + key_size + (0 if value_size == self._DELETED else value_size)
            if end > len(data):
                break  # of a writer that died: the next one writes over it
            key = data[start : start + key_size].decode(errors="replace")
            if value_size == self._DELETED:
                self._values.pop(key, None)
            else:
                self._values[key] = data[start + key_size : end]
            at = end
        self._read_up_to += at

    def _write(self, file: Any, key: str, value: bytes | None) -> None:
        name = key.encode()
        file.seek(self._read_up_to)
        file.truncate()
        size = self._DELETED if value is None else len(value)
        file.write(self._RECORD.pack(len(name), size) + name + (value or b""))
        file.flush()
        self._catch_up(file)

    def set(self, key: str, value: str | bytes) -> None:
        data = as_bytes(value)
        with self._locked() as file:
            self._write(file, key, data)

    def _wait_until(self, keys: Sequence[str], timeout: timedelta) -> bool:
        deadline, pause = time.monotonic() + timeout.total_seconds(), 0.001
        while True:
            with self._locked():
                if all(key in self._values for key in keys):
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def get(self, key: str) -> bytes:
        if not self._wait_until([key], self._timeout):
            milliseconds = int(self._timeout.total_seconds() * 1000)
            raise RuntimeError(f"Timeout waiting for key: {key} after {milliseconds} ms")
        return self._values[key]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        if not self._wait_until(keys, timeout or self._timeout):
            raise RuntimeError("Wait timeout")

    def check(self, keys: Sequence[str]) -> bool:
        with self._locked():
            return all(key in self._values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self._locked() as file:
            total = int(self._values.get(key, b"0")) + amount
            self._write(file, key, str(total).encode())
        return total

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        expected, desired = as_bytes(expected_value), as_bytes(desired_value)
        with self._locked() as file:
            held = self._values.get(key)
            if held == expected or (held is None and not expected):
                self._write(file, key, desired)
                return desired
        return expected if held is None else held

    def append(self, key: str, value: str | bytes) -> None:
        with self._locked() as file:
            self._write(file, key, self._values.get(key, b"") + as_bytes(value))

    def delete_key(self, key: str) -> bool:
        with self._locked() as file:
            there = key in self._values
            if there:
                self._write(file, key, None)
        return there

    def num_keys(self) -> int:
        with self._locked():
            return len(self._values)

    def list_keys(self) -> list[str]:
        with self._locked():
            return list(self._values)

    def clone(self) -> FileStore:
        return FileStore(self.path)

    def __del__(self) -> None:
        if getattr(self, "_world_size", -1) <= 0 or self._owner != os.getpid() or not os.path.exists(self.path):
            return
        with contextlib.suppress(Exception):  # at interpreter exit much is gone already
            if self.add("finished/", 1) >= self._world_size:
                os.unlink(self.path)
