"""Starting and stopping a server from a program, by the command `flambeau torchserve`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from typing import Any

_COMMAND = [sys.executable, "-m", "flambeau.cli", "torchserve"]


def stop(wait: bool = True) -> None:
    """Stop the server that `start` or the command started."""
    subprocess.run([*_COMMAND, "--stop", *(["--foreground"] if wait else [])], check=False)


def start(
    model_store: str,
    snapshot_file: str | None = None,
    no_config_snapshots: bool = False,
    plugin_folder: str | None = None,
    disable_token: bool = False,
    models: str | None = None,
    enable_model_api: bool = False,
) -> subprocess.Popen:
    """Start a server and return when it has printed that it is ready."""
    stop()
    command = [*_COMMAND, "--start", "--model-store", model_store]
    command += ["--plugins-path", plugin_folder] if plugin_folder else []
    command += ["--ts-config", snapshot_file] if snapshot_file else []
    command += ["--no-config-snapshots"] if no_config_snapshots else []
    command += ["--disable-token-auth"] if disable_token else []
    command += ["--models", models] if models else []
    command += ["--enable-model-api"] if enable_model_api else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if "Model server started" in line:
            break
    return process


def register_model_with_params(params: Any, address: str = "http://localhost:8081") -> Any:
    """Send POST /models with these parameters; return the answer's JSON."""
    request = urllib.request.Request(f"{address}/models?{urllib.parse.urlencode(params)}", method="POST")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def register_model(model_name: str, url: str) -> Any:
    """Register a model with one worker, and wait until it is ready."""
    return register_model_with_params(
        {"model_name": model_name, "url": url, "initial_workers": 1, "synchronous": "true"}
    )
