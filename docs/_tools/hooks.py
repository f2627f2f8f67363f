"""What the site's build adds to the pages of docs/: the version, notebooks and the project's own files as pages, and the API reference,
made from the library itself."""

from __future__ import annotations

import sys
import warnings
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
import notebooks  # noqa: E402
import reference  # noqa: E402

from flambeau.torch_version import OWN_VERSION  # noqa: E402

# Pages of single names are thousands: the theme renders one, and the others are copies of it with other contents.
_MODEL = "reference/model.md"
_NAME, _CONTENT = "NAME-OF-THE-ENTRY", "CONTENT-OF-THE-ENTRY"
_model: list[str] = []


# The titles of the notebooks, in the order in which they are read.
_NOTEBOOKS = {
    "The first hour": "first-hour", "Vision": "vision", "Text": "text", "Compile and profiling": "compile-and-profiling",
    "Export and serving": "export-and-serving",
}  # fmt: skip


# Files of the repository's root that are pages, too.
_OF_THE_ROOT = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def on_config(config: Any) -> Any:
    config.site_name += f" {OWN_VERSION}"
    sections = {title: content for part in config.nav for title, content in part.items()}
    sections["Reference"] += [{title: reference.address(title)} for title in reference.PAGES]
    sections["Tutorials"].append({"Notebooks": [{title: f"notebooks/{name}.md"} for title, name in _NOTEBOOKS.items()]})
    return config


def on_files(files: Files, config: Any) -> Files:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for address, text in reference.overviews():
            files.append(File.generated(config, address, content=text))
    for name in _NOTEBOOKS.values():
        content = notebooks.page(notebooks.FOLDER / f"{name}.ipynb")
        files.append(File.generated(config, f"notebooks/{name}.md", content=content))
    for address, name in _OF_THE_ROOT.items():
        content = (Path(__file__).parents[2] / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, address, content=content))
    hidden = "search:\n  exclude: true\nhide: [toc]"
    files.append(File.generated(config, _MODEL, content=f"---\n{hidden}\n---\n\n# {_NAME}\n\n{_CONTENT}\n"))
    return files


def on_nav(nav: Any, config: Any, files: Files) -> Any:
    """Put the model, which is in no menu, under "Reference": so that tab is the active one."""
    section = next(item for item in nav.items if item.title == "Reference")
    files.get_file_from_path(_MODEL).page.parent = section  # type: ignore[union-attr]
    return nav


def on_post_page(output: str, page: Any, config: Any) -> str:
    if page.file.src_uri != _MODEL:
        return output
    _model[:] = output.replace(f"<p>{_CONTENT}</p>", _CONTENT).split(_CONTENT)
    return ""  # the model itself is no page


@event_priority(100)  # before the index of the search is written
def on_post_build(config: Any) -> None:
    before, after = _model
    search = config.plugins["material/search"].search_index.entries
    site = Path(config.site_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for address, name, summary, content in reference.pages():
            text = before.replace(_NAME, escape(name)) + content + after.replace(_NAME, escape(name))
            (site / address).write_text(text, "utf-8")
            search.append({"location": address, "title": name, "text": escape(summary), "boost": 0.5})
