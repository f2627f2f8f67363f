"""The notebooks of docs/notebooks: run again, and shown as pages of the site.

python docs/_tools/notebooks.py             # run all of them and keep what they show; needs nbclient and ipykernel
python docs/_tools/notebooks.py text.ipynb  # or some
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"


def run(path: Path) -> Any:
    """The notebook, run in a folder of its own; an error in a cell is raised."""
    import nbclient  # noqa: PLC0415  the site is built without it
    import nbformat  # noqa: PLC0415

    notebook = nbformat.read(path, as_version=4)
    os.environ["PYTHONPATH"] = str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    return notebook


def _write(path: Path, notebook: Any) -> None:
    """Keep a notebook without what differs from run to run (times, the interpreter's version), and each picture once."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("image/jpeg", None)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def page(path: Path) -> str:
    """A notebook as Markdown: texts, code, and what it showed."""
    cells = json.loads(path.read_text())["cells"]
    parts = [part for cell in cells for part in _cell(cell)]
    note = f"*This page is a notebook: `docs/notebooks/{path.name}`.*"
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [text]
    return [f"```python\n{text}\n```", *filter(None, map(_output, cell["outputs"]))]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f'```text title="Output"\n{"".join(output["text"]).rstrip()}\n```'
    data = {kind: "".join(text) if isinstance(text, list) else text for kind, text in output.get("data", {}).items()}
    if "image/svg+xml" in data:
        return _block("wide", re.sub(r"\n\s*", " ", data["image/svg+xml"]))
    if "image/png" in data:
        picture = (
            f'<img alt="Picture that the cell above shows" src="data:image/png;base64,{data["image/png"].strip()}">'
        )
        return _block("shown", picture.replace("\n", ""))
    if "text/html" in data:
        return _block("shown", re.sub(r"\n\s*", " ", data["text/html"]))
    return f'```text title="Output"\n{data["text/plain"]}\n```' if "text/plain" in data else ""


def _block(kind: str, html: str) -> str:
    return f'<div class="{kind}">{html}</div>'


def main() -> None:
    for path in [FOLDER / name for name in sys.argv[1:]] or sorted(FOLDER.glob("*.ipynb")):
        _write(path, run(path))


if __name__ == "__main__":
    main()
