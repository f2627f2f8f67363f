"""Errors that a server answers with: a status code, TorchServe's name of the error, and a message.

Each class here carries the HTTP status; its own name is the `type` clients see in the JSON of the answer.
"""

from __future__ import annotations

import functools
import json


class ConfigurationError(Exception):
    """Raised for an invalid setting."""


class ServeError(Exception):
    """An error response. `status` is HTTP's code, the class's name the `type` in the JSON."""

    status = 500

    def __init__(self, message: str, status: int | None = None):
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status = status

    @property
    def kind(self) -> str:
        """The `type` that clients read in the answer."""
        return type(self).__name__

    def body(self) -> bytes:
        """Return the answer's JSON, formatted like TorchServe's."""
        return error_body(self.status, self.kind, self.message)


@functools.lru_cache(256)  # a server that refuses much says the same again and again
def error_body(status: int, kind: str, message: str) -> bytes:
    """Return the JSON body of an error response."""
    return json.dumps({"code": status, "type": kind, "message": message}, indent=2).encode() + b"\n"


class BadRequestException(ServeError):
    status = 400


class DownloadArchiveException(ServeError):
    status = 400


class InvalidModelException(ServeError):
    status = 400


class InvalidWorkflowException(ServeError):
    status = 400


class InvalidKeyException(ServeError):
    status = 400


class ModelException(ServeError):
    status = 400


class ResourceNotFoundException(ServeError):
    status = 404

    def __init__(self, message: str = "Requested resource is not found, please refer to API document."):
        super().__init__(message)


class ModelNotFoundException(ServeError):
    status = 404


class ModelVersionNotFoundException(ServeError):
    status = 404


class WorkflowNotFoundException(ServeError):
    status = 404


class MethodNotAllowedException(ServeError):
    status = 405

    def __init__(self, message: str = "Requested method is not allowed, please refer to API document."):
        super().__init__(message)


class ConflictStatusException(ServeError):
    status = 409


class RequestTooLargeException(ServeError):
    status = 413


class InternalServerException(ServeError):
    status = 500


class InvalidModelVersionException(ServeError):
    status = 500


class ServiceUnavailableException(ServeError):
    status = 503
