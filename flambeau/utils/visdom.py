"""Offline installation of the scripts of visdom's page, from the package manager npm.

`python -m flambeau.utils.visdom` adds them to an installed visdom, once, and starts its server. `python -m visdom.server` works from then
on, too, without any network.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

_FONTS = "eot woff2 woff ttf svg"
# What visdom's page loads: npm's package, the file in it, and where the page looks for it.
FILES = [
    ("jquery@3.1.1", "dist/jquery.min.js", "js/jquery.min.js"),
    ("bootstrap@3.3.7", "dist/js/bootstrap.min.js", "js/bootstrap.min.js"),
    ("bootstrap@3.3.7", "dist/css/bootstrap.min.css", "css/bootstrap.min.css"),
    *(
        (
            "bootstrap@3.3.7",
            f"dist/fonts/glyphicons-halflings-regular.{kind}",
            f"fonts/glyphicons-halflings-regular.{kind}",
        )
        for kind in _FONTS.split()
    ),
    (
        "bootstrap@3.3.7",
        "dist/fonts/glyphicons-halflings-regular.svg",
        "fonts/glyphicons-halflings-regular.svg#glyphicons_halflingsregular",
    ),
    ("react@16.2.0", "umd/react.production.min.js", "js/react-react.min.js"),
    ("react-dom@16.2.0", "umd/react-dom.production.min.js", "js/react-dom.min.js"),
    ("react-modal@3.1.10", "dist/react-modal.min.js", "js/react-modal.min.js"),
    ("plotly.js-dist-min@2.11.1", "plotly.min.js", "js/plotly-plotly.min.js"),
    ("sjcl@1.0.7", "sjcl.js", "js/sjcl.js"),
    ("layout-bin-packer@1.4.0", "dist/layout-bin-packer.js", "js/layout_bin_packer.js"),
    ("layout-bin-packer@1.4.0", "dist/layout-bin-packer.js.map", "js/layout-bin-packer.js.map"),
    ("d3@3.5.17", "d3.min.js", "js/d3.v3.min.js"),
    ("d3-selection-multi@1.0.1", "build/d3-selection-multi.js", "js/d3-selection-multi.v1.js"),
    ("save-svg-as-png@1.4.17", "lib/saveSvgAsPng.js", "js/saveSvgAsPng.js"),
    ("react-resizable@1.4.6", "css/styles.css", "css/react-resizable-styles.css"),
    ("react-grid-layout@0.16.3", "css/styles.css", "css/react-grid-layout-styles.css"),
    ("classnames@2.2.5", "index.js", "fonts/classnames"),
    *(
        ("mathjax@2.7.5", name, f"js/mathjax/2.7.5/{name}")
        for name in (
            "MathJax.js",
            "config/Safe.js",
            "config/TeX-AMS-MML_HTMLorMML.js",
            "extensions/Safe.js",
            "jax/output/SVG/fonts/TeX/fontdata.js",
            "jax/output/SVG/jax.js",
            "jax/output/SVG/fonts/TeX/Size1/Regular/Main.js",
            "jax/output/SVG/config.js",
        )
    ),
]


def provide(package: Path, version: str) -> list[str]:
    """Add the files that are missing below `package` (visdom's folder); return their names, in order."""
    static = package / "static"
    missing = [entry for entry in FILES if not (static / entry[2]).exists()]
    if missing and shutil.which("npm") is None:
        raise RuntimeError(f"visdom's page needs {len(missing)} scripts that npm provides: install npm, then try again")
    with tempfile.TemporaryDirectory() as place:
        for source in dict.fromkeys(entry[0] for entry in missing):
            folder = _download_package(source, Path(place))
            for _, name, target in (entry for entry in missing if entry[0] == source):
                (static / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, static / target)
    (static / "version.built").write_text(version)  # what visdom looks at before it downloads anything
    return [entry[2] for entry in missing]


def _download_package(source: str, place: Path) -> Path:
    """Return the folder of one npm package, downloaded and unpacked below `place`."""
    command = ["npm", "pack", "--silent", source]
    answer = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {answer.stderr.strip() or answer.stdout.strip()}")
    folder = place / source
    with tarfile.open(place / answer.stdout.split()[-1]) as packed:
        packed.extractall(folder, filter="data")
    return folder / "package"


def main() -> None:
    """Add missing files and start visdom's server with the options of the command line."""
    try:
        visdom = importlib.import_module("visdom")
    except ImportError as problem:
        raise SystemExit(f"visdom is not installed ({problem}): pip install visdom") from None
    server = importlib.import_module("tornado")
    if server.version_info >= (6, 5):  # visdom's page names a file outside its folder, which newer ones refuse
        raise SystemExit(f"visdom's page is refused (403) by tornado {server.version}: pip install 'tornado<6.5'")
    for name in provide(Path(visdom.__path__[0]), visdom.__version__):
        print(f"provided {name}")
    importlib.import_module("visdom.server.run_server").main()


if __name__ == "__main__":
    main()
