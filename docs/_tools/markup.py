"""Pieces of HTML for pages that are made without Markdown, because there are thousands of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonConsoleLexer, PythonLexer

_PLAIN = HtmlFormatter(nowrap=True)
_LEXERS = {"python": PythonLexer(), "pycon": PythonConsoleLexer()}


def code(text: str, language: str = "") -> str:
    """A block of code, in colours if its language is known."""
    inner = highlight(text, _LEXERS[language], _PLAIN) if language else escape(text)
    return f'<div class="highlight"><pre><span></span><code>{inner.rstrip()}\n</code></pre></div>'


def inline(text: str) -> str:
    """A line of text, with code between backquotes."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(f"<code>{escape(p)}</code>" if i % 2 else escape(p) for i, p in enumerate(parts))


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table>"


def prose(text: str) -> str:
    """A docstring: paragraphs, lists, examples, blocks that are indented."""
    return "\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text) if part.strip())


def _paragraph(part: str) -> str:
    lines = part.strip("\n").split("\n")
    if lines[0].lstrip().startswith(">>>"):
        return code("\n".join(line.removeprefix(" " * _margin(lines)) for line in lines), "pycon")
    if _margin(lines) >= 4:
        return code("\n".join(line[_margin(lines) :] for line in lines))
    if re.match(r"[-*] ", lines[0]):
        items = re.split(r"\n[-*] ", "\n".join(lines)[2:])
        return "<ul>" + "".join(f"<li>{inline(item)}</li>" for item in items) + "</ul>"
    example = next((i for i, line in enumerate(lines) if line.startswith(">>>")), len(lines))
    rest = "\n" + _paragraph("\n".join(lines[example:])) if example < len(lines) else ""
    return f"<p>{inline(chr(10).join(lines[:example]))}</p>{rest}"


def _margin(lines: list[str]) -> int:
    return min(len(line) - len(line.lstrip()) for line in lines if line.strip())
