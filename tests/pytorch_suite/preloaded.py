"""What every process of a test needs, loaded once: a server that has imported this is forked for each of them."""

import os
from pathlib import Path

file, library = os.environ["PYTORCH_SUITE_SOURCE"].split(os.pathsep)
if library == "flambeau":
    import flambeau

    flambeau.install_as_torch()
from . import children, imports  # noqa: E402 - they import torch

children.source = (file, library)
imports.install(library == "flambeau")
module = imports.load(Path(file))
