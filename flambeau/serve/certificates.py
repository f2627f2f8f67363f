"""TLS: a private key and its certificate, from PEM files or a PKCS#12 keystore. Keys read from a keystore stay in memory."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from .errors import ConfigurationError


def from_files(key: str | None, certificate: str | None) -> tuple[bytes, bytes]:
    """Return the private key and the certificate of two PEM files."""
    if not key or not certificate:
        raise ConfigurationError("https needs private_key_file and certificate_file, or keystore")
    for file in (key, certificate):
        if not os.path.isfile(file):
            raise ConfigurationError(f"no such file: {file}")
    return Path(key).read_bytes(), Path(certificate).read_bytes()


def from_keystore(path: str, password: str) -> tuple[bytes, bytes]:
    """Return the private key and the certificates of a keystore, in PEM form."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  an optional package
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError as e:
        raise ConfigurationError("a keystore needs the package cryptography: pip install cryptography") from e
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(Path(path).read_bytes(), password.encode())
    except ValueError as e:
        raise ConfigurationError(f"the keystore {path} cannot be opened: {e}") from e
    if key is None or certificate is None:
        raise ConfigurationError(f"{path} holds no private key with a certificate")
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return (
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain),
        b"".join(c.public_bytes(encoding) for c in [certificate, *more]),
    )


@contextlib.contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    """Context manager: yield the path of an in-memory file that no other user can open, because `ssl` reads keys from paths only."""
    descriptor = os.memfd_create("flambeau-pem", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def server_context(key: bytes, certificate: bytes) -> ssl.SSLContext:
    """Return the TLS context of a listener with this key and certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with _memory_file(key) as key_path, _memory_file(certificate) as certificate_path:
        try:
            context.load_cert_chain(certificate_path, key_path)
        except ssl.SSLError as e:
            raise ConfigurationError(f"the private key and the certificate cannot be used: {e}") from e
    return context
