"""A headless Chromium that looks at the built site.

python -m tests.docs.browser SITE FOLDER index.html reference/torch.nn.Linear.html    # pictures, at two widths
"""

from __future__ import annotations

import functools
import http.server
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DESKTOP, PHONE = 1280, 390
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip


class _Handler(http.server.SimpleHTTPRequestHandler):
    results: queue.Queue[dict[str, Any]]
    missing: list[str]

    def do_GET(self) -> None:
        if self.path.startswith("/__check"):
            page = (Path(__file__).parent / "check.html").read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)
        else:
            super().do_GET()

    def do_POST(self) -> None:
        self.results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def send_error(self, code: int, *args: Any, **kwargs: Any) -> None:
        if not self.path.endswith("/favicon.ico"):
            self.missing.append(f"{code} {self.path}")
        super().send_error(code, *args, **kwargs)

    def log_message(self, *args: Any) -> None:
        pass


class Browser:
    """Chromium beside a server of one folder."""

    def __init__(self, port: int, handler: type[_Handler], profile: str) -> None:
        self.port, self.handler, self.profile = port, handler, profile

    def _start(self, address: str, *options: str) -> subprocess.Popen:
        url = f"http://127.0.0.1:{self.port}/{address}"
        command = [str(PROGRAM), *_OPTIONS, f"--user-data-dir={self.profile}", *options, url]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def look(self, page: str, width: int, search: str = "") -> dict[str, Any]:
        """What check.html finds on a page, with the console's errors and the files that were missing."""
        self.handler.missing.clear()
        asked = urllib.parse.urlencode({"page": page, "width": width, "search": search})
        process = self._start(f"__check?{asked}", "--window-size=1400,1000", "--remote-debugging-port=0")
        try:
            found = self.handler.results.get(timeout=120)
        finally:
            process.terminate()
            told = process.communicate()[1]
        console = [line for line in told.splitlines() if ":CONSOLE" in line and "favicon.ico" not in line]
        return {**found, "console": console, "missing": list(self.handler.missing)}

    def picture(self, page: str, width: int, height: int, path: Path) -> None:
        """A picture of the top of a page."""
        asked = urllib.parse.urlencode({"page": page, "width": width, "height": height})
        size = f"--window-size={max(width, 500)},{height}"
        shot = self._start(f"__check?{asked}", size, f"--screenshot={path}", "--virtual-time-budget=6000")
        shot.communicate(timeout=120)


@contextmanager
def browser(site: Path) -> Iterator[Browser]:
    """A browser for a built site."""
    handler = type("Handler", (_Handler,), {"results": queue.Queue(), "missing": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        try:
            yield Browser(server.server_address[1], handler, profile)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


if __name__ == "__main__":
    with browser(Path(sys.argv[1])) as found:
        for name in sys.argv[3:]:
            for wide, high in ((DESKTOP, 900), (PHONE, 844)):
                found.picture(name, wide, high, Path(sys.argv[2]) / f"{name.replace('/', '-')}-{wide}.png")
