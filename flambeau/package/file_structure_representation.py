"""The files of a package as a printable tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .glob_group import GlobGroup


class Directory:
    """A file, or a folder with its contents."""

    def __init__(self, name: str, is_dir: bool):
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def add_file(self, path: str) -> None:
        """Add a file, and its parent folders."""
        first, slash, rest = path.partition("/")
        child = self.children.setdefault(first, Directory(first, bool(slash)))
        if slash:
            child.add_file(rest)

    def has_file(self, filename: str) -> bool:
        """Return whether there is a file or folder of this path."""
        first, slash, rest = filename.partition("/")
        child = self.children.get(first)
        return child is not None and (not slash or child.has_file(rest))

    def __str__(self) -> str:
        return "\n".join(self._lines("", "─── ", "    ")) + "\n"

    def _lines(self, before: str, mark: str, below: str) -> Iterator[str]:
        yield before + mark + self.name
        ordered = sorted(self.children.values(), key=lambda child: (not child.is_dir, child.name))
        for i, child in enumerate(ordered):
            last = i == len(ordered) - 1
            yield from child._lines(before + below, "└── " if last else "├── ", "    " if last else "│   ")


def tree(name: str, files: Iterable[str], include: str | Iterable[str], exclude: str | Iterable[str]) -> Directory:
    """Return the files whose paths match the patterns, below a folder `name`."""
    wanted, root = GlobGroup(include, exclude=exclude, separator="/"), Directory(name, True)
    for path in files:
        if wanted.matches(path):
            root.add_file(path)
    return root
