"""What the site's build adds to the pages of docs/: the API reference, made from the library itself."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
import reference  # noqa: E402


def on_config(config: Any) -> Any:
    section = next(part["Reference"] for part in config.nav if "Reference" in part)
    section += [{title: reference.address(title)} for title in reference.PAGES]
    return config


def on_files(files: Files, config: Any) -> Files:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _, address, text in reference.pages():
            files.append(File.generated(config, address, content=text))
    return files
