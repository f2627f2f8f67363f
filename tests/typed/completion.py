"""Time completions as an editor asks for them, with pyright's language server: Flambeau's, and PyTorch's where it is installed.

    python -m tests.typed.completion

The first request of a session pays for starting and for reading the library; `import math` shows what of that is the server's own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.docs.blocks import ROOT

TYPED = (
    "torch.",
    "torch.ra",
    "x.",
    "x.re",
    "nn.",
    "nn.Li",
    "F.",
    "F.cr",
    "torch.optim.",
    "torch.utils.data.",
    "layer(x).",
    "torch.",
)


def program() -> str | None:
    """The path of the language server; None where it is not installed."""
    beside = Path(sys.prefix, "bin", "pyright-langserver")
    return str(beside) if beside.exists() else shutil.which("pyright-langserver")


class Server:
    """A language server that is asked over its standard input and output."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [str(program()), "--stdio"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self.asked = 0
        workspace = {"uri": folder.as_uri(), "name": "test"}
        asked = {"workspace": {"configuration": True, "workspaceFolders": True}}
        self.ask(
            "initialize",
            processId=os.getpid(),
            rootUri=folder.as_uri(),
            workspaceFolders=[workspace],
            capabilities=asked,
        )
        self.tell("initialized")

    def _send(self, **message: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]

    def _receive(self) -> dict[str, Any]:
        stream: Any = self.process.stdout
        length = 0
        while line := stream.readline().strip():
            if line.startswith(b"Content-Length"):
                length = int(line.split(b":")[1])
        if not length:
            raise RuntimeError("the language server has ended")
        return json.loads(stream.read(length))

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._send(method=method, params=params)

    def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return its result, answering what the server asks meanwhile."""
        self.asked += 1
        self._send(id=self.asked, method=method, params=params)
        while True:
            message = self._receive()
            if "method" not in message and message.get("id") == self.asked:
                return message.get("result")
            if "method" in message and "id" in message:
                items = message["params"].get("items", ()) if message["method"] == "workspace/configuration" else ()
                settings = [{"pythonPath": sys.executable} if i.get("section") == "python" else {} for i in items]
                self._send(id=message["id"], result=settings or None)


def completions(head: str, typed: tuple[str, ...] = TYPED) -> list[tuple[str, float, int]]:
    """(what is typed, seconds, number of proposals) in a file that begins with `head`, in order."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        server = Server(folder)
        try:
            file = (folder / "program.py").as_uri()
            server.tell(
                "textDocument/didOpen", textDocument={"uri": file, "languageId": "python", "version": 1, "text": head}
            )
            for version, line in enumerate(typed, 2):
                document = {"uri": file, "version": version}
                server.tell(
                    "textDocument/didChange", textDocument=document, contentChanges=[{"text": f"{head}{line}\n"}]
                )
                place = {"line": head.count("\n"), "character": len(line)}
                begin = time.perf_counter()
                told = server.ask("textDocument/completion", textDocument={"uri": file}, position=place)
                items = told["items"] if isinstance(told, dict) else told or []
                found.append((line, time.perf_counter() - begin, len(items)))
        finally:
            server.process.kill()
            server.process.communicate()
    return found


def head(library: str) -> str:
    """The first lines of a program that uses a library with PyTorch's names."""
    lines = (
        f"import {library} as torch", f"import {library}.nn as nn", f"import {library}.nn.functional as F",
        "x = torch.randn(3)", "layer = nn.Linear(3, 4)",
    )  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    print(f"{'import math':24}{completions('import math' + chr(10), ('math.',))[0][1]:8.2f} s")
    for library in ("flambeau", *(["torch"] if importlib.util.find_spec("torch") else [])):
        print(library)
        for line, seconds, count in completions(head(library)):
            print(f"    {line:20}{seconds:8.2f} s {count:6} names")


if __name__ == "__main__":
    main()
