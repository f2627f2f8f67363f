"""docs/pictures/gallery-*: the pictures of gallery.md, made again by the code on that page.

python docs/_tools/pictures.py
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import run  # noqa: E402

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for title in run(ROOT / "docs" / "gallery.md"):
            print("left out:", title)
        for picture in Path(folder).glob("gallery-*"):
            shutil.copy(picture, ROOT / "docs" / "pictures")
        os.chdir(ROOT)
