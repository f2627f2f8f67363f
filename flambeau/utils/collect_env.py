"""`python -m flambeau.utils.collect_env`: description of the environment, for bug reports."""

from __future__ import annotations

import importlib.metadata

from ..config import show

_RELEVANT = ("flambeau", "mpi4py", "numpy", "onnx", "pillow", "safetensors", "scipy", "tensorboard")


def get_pretty_env_info() -> str:
    """Return versions, processor, libraries and relevant packages, one fact per line."""
    found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions() if d.metadata["Name"]}
    packages = [f"{name}=={found[name]}" for name in _RELEVANT if name in found]
    return show() + "\n\nRelevant packages:\n" + "\n".join(packages)


def main() -> None:
    """Print the description of the environment."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
