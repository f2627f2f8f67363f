"""Parsing of request bodies into named values: the fields of a form, or one value called `body`."""

from __future__ import annotations

import urllib.parse

from .errors import BadRequestException
from .http import MAX_HEADERS, Request
from .job import Parameters

MOST_FIELDS = 1000  # of a form
_TOO_MANY = f"A form has at most {MOST_FIELDS} fields."


def body_parameters(request: Request) -> Parameters:
    """Return the body as named values with their types: the fields of a form, or one called `body`."""
    kind = request.content_type
    if kind == "multipart/form-data":
        return _multipart(request.body, request.lower["content-type"])
    if kind == "application/x-www-form-urlencoded":
        if request.body.count(b"&") >= MOST_FIELDS:
            raise BadRequestException(_TOO_MANY)
        pairs = urllib.parse.parse_qsl(request.body.decode("latin-1"), keep_blank_values=True, encoding="utf-8")
        return [(name, "", value.encode()) for name, value in pairs]
    return [("body", kind, request.body)]


def _options(header: str) -> dict[str, str]:
    """Parse the options of a header: `form-data; name="a"; filename="b"` -> {"name": "a", "filename": "b"}."""
    found = {}
    for part in header.split(";")[1:]:
        key, _, value = part.partition("=")
        found[key.strip().lower()] = value.strip().strip('"')
    return found


def _multipart(body: bytes, content_type: str) -> Parameters:
    boundary = _options(content_type).get("boundary", "")
    if not boundary:
        raise BadRequestException("A multipart request needs a boundary.")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1"))
    if len(parts) < 2 or not parts[-1].startswith(b"--"):
        raise BadRequestException("The multipart request is not complete.")
    if len(parts) > MOST_FIELDS + 2:
        raise BadRequestException(_TOO_MANY)
    fields = []
    for part in parts[1:-1]:
        head, blank, content = part.partition(b"\r\n\r\n")
        if len(head) > MAX_HEADERS:
            raise BadRequestException("The headers of a part of the multipart request are too large.")
        headers = {}
        for line in head.decode("utf-8", "replace").split("\r\n"):
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        options = _options(headers.get("content-disposition", ""))
        if not blank or "name" not in options:
            raise BadRequestException("A part of the multipart request has no name.")
        default = "application/octet-stream" if "filename" in options else ""
        kind = headers.get("content-type", default).partition(";")[0].strip() if "filename" in options else ""
        fields.append((options["name"], kind, content))
    return fields
