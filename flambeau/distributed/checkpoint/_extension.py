"""Extensions: transformations of a checkpoint's bytes on their way to and from the files."""

from __future__ import annotations

import abc
import io
from collections.abc import Sequence
from typing import IO, Any

__all__ = ["Extension", "ExtensionRegistry", "Rot13Example", "StreamTransformExtension", "ZStandard"]


class Extension(abc.ABC):
    """Base of extensions, which are found by the name that is stored in the checkpoint."""

    @staticmethod
    @abc.abstractmethod
    def registry_name() -> str:
        """Return the name under which the extension is registered."""

    @staticmethod
    @abc.abstractmethod
    def from_descriptor(version: str) -> Extension:
        """Return the extension for a version that was stored in a checkpoint."""

    @abc.abstractmethod
    def get_descriptor(self) -> str:
        """Return the text to store in the checkpoint: the name, and after a slash a version."""


class StreamTransformExtension(Extension):
    """An extension that transforms the byte stream of a checkpoint, such as compression."""

    @abc.abstractmethod
    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        """Return a stream that transforms what is written to it and passes it on to `output`."""

    @abc.abstractmethod
    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        """Return a stream of the original data that reads a transformed stream."""


class ZStandard(StreamTransformExtension):
    """Compression with Zstandard; needs the package `zstandard` (or Python 3.14)."""

    @staticmethod
    def is_available() -> bool:
        try:
            import zstandard  # noqa: F401, PLC0415
        except ImportError:
            return False
        return True

    @staticmethod
    def registry_name() -> str:
        return "stream.zstd"

    @staticmethod
    def from_descriptor(version: str) -> ZStandard:
        if version.partition(".")[0] != "1":
            raise ValueError(f"Unknown extension version={version!r}")
        if not ZStandard.is_available():
            raise ValueError(
                f"Stream with extension {ZStandard.registry_name()} is not available: pip install zstandard"
            )
        return ZStandard()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        import zstandard  # noqa: PLC0415

        return zstandard.ZstdCompressor().stream_writer(output)

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        import zstandard  # noqa: PLC0415

        return zstandard.ZstdDecompressor().stream_reader(input)


class Rot13Example(StreamTransformExtension):
    """An example extension that applies ROT13 to the bytes."""

    _TABLE = bytes(
        (b - base + 13) % 26 + base if base else b
        for b in range(256)
        for base in [65 if 65 <= b <= 90 else 97 if 97 <= b <= 122 else 0]
    )

    def __init__(self, chunk_size: int = io.DEFAULT_BUFFER_SIZE) -> None:
        self._chunk_size = chunk_size

    @staticmethod
    def registry_name() -> str:
        return "stream.rot13"

    @staticmethod
    def from_descriptor(version: str) -> Rot13Example:
        if version.partition(".")[0] != "1":
            raise ValueError(f"Unknown extension version={version!r}")
        return Rot13Example()

    def get_descriptor(self) -> str:
        return f"{self.registry_name()}/1"

    def transform_to(self, output: IO[bytes]) -> IO[bytes]:
        return _Rot13Stream(output)  # type: ignore[return-value]

    def transform_from(self, input: IO[bytes]) -> IO[bytes]:
        return _Rot13Stream(input)  # type: ignore[return-value]


class _Rot13Stream(io.RawIOBase):
    def __init__(self, inner: IO[bytes]) -> None:
        self.inner = inner

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return self.inner.write(bytes(data).translate(Rot13Example._TABLE))

    def readinto(self, buffer: Any) -> int:
        data = self.inner.read(len(buffer)).translate(Rot13Example._TABLE)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.inner.close()


class ExtensionRegistry:
    """Extensions by the names that are stored in checkpoints."""

    def __init__(self) -> None:
        self.extensions: dict[str, type[Extension]] = {kind.registry_name(): kind for kind in (Rot13Example, ZStandard)}

    def register(self, cls: type[Extension]) -> None:
        self.extensions[cls.registry_name()] = cls

    def from_descriptor_list(self, descriptors: Sequence[str]) -> Sequence[Extension]:
        """Return the extensions of stored descriptors, in this order."""

        def find(descriptor: str) -> Extension:
            name, _, version = descriptor.partition("/")
            if name not in self.extensions:
                raise ValueError(f"Unknown extension name={name!r}")
            return self.extensions[name].from_descriptor(version or "0")

        return [find(descriptor) for descriptor in descriptors]
