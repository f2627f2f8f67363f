"""Dependencies of a package: the modules that it needs, their users, and how each was handled."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from enum import Enum


class PackagingErrorReason(Enum):
    """Reason for which a module cannot be in a package."""

    IS_EXTENSION_MODULE = (
        "Module is a C extension module. torch.package supports Python modules only."  # and how it is handled
    )
    NO_DUNDER_FILE = "Module had no __file__ defined."
    SOURCE_FILE_NOT_FOUND = (
        "Module had a __file__, but we could not find it in your filesystem."  # built elsewhere, or removed
    )
    DEPENDENCY_RESOLUTION_FAILED = "Dependency resolution failed."
    NO_ACTION = "Module did not match against any action pattern. Extern, mock, or intern it."
    DENIED = "Module was denied by a pattern."
    MOCKED_BUT_STILL_USED = (
        "Module was mocked out, but is still being used in the package. Please intern or extern the mocked modules if"
        " objects are supposed to be in the package."
    )


class Dependencies:
    """The modules of a package: how each was handled, who needs it, and why one cannot be packaged."""

    def __init__(self) -> None:
        self.actions: dict[str, str] = {}
        self._needs: dict[str, list[str]] = {}
        self._reasons: dict[str, PackagingErrorReason] = {}

    def needs(self, user: str, name: str) -> None:
        """Record that a module, or a saved object, needs a module."""
        known = self._needs.setdefault(user, [])
        if name not in known:
            known.append(name)

    def fail(self, name: str, reason: PackagingErrorReason) -> None:
        """Record that a module cannot be packaged."""
        self._reasons.setdefault(name, reason)

    def broken(self) -> list[str]:
        """Return the modules that cannot be packaged."""
        return list(self._reasons)

    def problems(self) -> dict[PackagingErrorReason, list[str]]:
        """Return the modules that cannot be packaged, by reason."""
        found: dict[PackagingErrorReason, list[str]] = {}
        for name, reason in self._reasons.items():
            found.setdefault(reason, []).append(name)
        return found

    def users_of(self, name: str) -> list[str]:
        """Return the modules and saved objects that need a module."""
        return [user for user, needed in self._needs.items() if name in needed]

    def first_path(self, name: str) -> list[str]:
        """Return the shortest dependency path from a root module to this one."""
        waiting = deque([[name]])
        seen = {name}
        while waiting:
            path = waiting.popleft()
            users = [user for user in self.users_of(path[0]) if user not in seen]
            if not users:
                return path
            seen.update(users)
            waiting.extend([user, *path] for user in users)
        return [name]

    def to_dot(self) -> str:
        """Return the dependency graph in the language of Graphviz."""
        lines = [f'"{user}" -> "{name}";' for user, needed in self._needs.items() for name in needed]
        return "\n".join(["digraph G {", "rankdir = LR;", "node [shape=box];", *lines, "}"])


def imported_by(source: str, package: str) -> Iterator[tuple[str, str | None]]:
    """Yield the modules that a source text imports, as (module, part): the part may be a submodule, or a name in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".") if node.level else []
            base = base[: len(base) - node.level + 1] if node.level else base
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from ((name, None if alias.name == "*" else alias.name) for alias in node.names)
