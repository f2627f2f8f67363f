"""Tokens and n-grams of a text, for the text handlers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_SPACED = [(re.compile(p), r) for p, r in ((r"'", " '  "), (r'"', ""), (r"\.", " . "), (r"<br \/>", " "), (r",", " , "),
                                           (r"\(", " ( "), (r"\)", " ) "), (r"!", " ! "), (r"\?", " ? "),
                                           (r";", " "), (r":", " "), (r"\s+", " "))]  # fmt: skip


def basic_english(line: str) -> list[str]:
    """Split a text into lower-case tokens, with punctuation set apart."""
    line = line.lower()
    for pattern, replacement in _SPACED:
        line = pattern.sub(replacement, line)
    return line.split()


def get_tokenizer(name: str) -> Callable[[str], list[str]]:
    """Return the tokenizer of this name: `basic_english`."""
    if name != "basic_english":
        raise ValueError(f"the tokenizer is basic_english, got {name!r}")
    return basic_english


def ngrams_iterator(token_list: list[str], ngrams: int) -> Iterator[str]:
    """Yield the tokens, then every run of 2, 3, ... `ngrams` neighbours joined by spaces."""
    yield from token_list
    for n in range(2, ngrams + 1):
        for window in zip(*(token_list[i:] for i in range(n))):
            yield " ".join(window)
