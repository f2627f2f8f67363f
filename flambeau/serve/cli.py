"""Command lines: `torchserve` with TorchServe's options, and `flambeau serve` for one model or many."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ..core import naming
from . import processes, snapshots
from .errors import ServeError
from .settings import ConfigurationError, Settings, read_properties
from .ts.version import __version__


def torchserve_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchserve", description="Serves models over HTTP and gRPC (Flambeau).")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-v", "--version", action="store_true", help="show the version of TorchServe's interface")
    what.add_argument("--start", action="store_true", help="start the server")
    what.add_argument("--stop", action="store_true", help="stop the server")
    parser.add_argument("--ts-config", help="the configuration file (config.properties)")
    parser.add_argument("--model-store", help="the folder with model archives")
    parser.add_argument("--workflow-store", help="the folder with workflow archives")
    parser.add_argument("--models", nargs="+", metavar="[NAME=]ARCHIVE", help="models to load at the start, or `all`")
    parser.add_argument("--log-config", help="accepted; log files go to the folder LOG_LOCATION names, or logs/")
    parser.add_argument("--cpp-log-config", help="accepted; there is no C++ back end")
    parser.add_argument("--foreground", action="store_true", help="do not go to the background; wait when stopping")
    parser.add_argument("--no-config-snapshots", "--ncs", action="store_true", help="keep no snapshots")
    parser.add_argument("--plugins-path", "--ppath", help="refused: plugins are Java programs")
    parser.add_argument("--disable-token-auth", "--dt", action="store_true", help="ask no key of clients")
    parser.add_argument("--enable-model-api", action="store_true", help="let clients register and unregister models")
    return parser


def torchserve(arguments: Sequence[str] | None = None) -> int:
    """Run the command `torchserve`."""
    options = torchserve_parser().parse_args(arguments)
    if options.version:
        print(f"TorchServe Version is {__version__}")
        return 0
    if options.stop:
        return _stop(options.foreground)
    if options.plugins_path:
        print("--plugins-path: TorchServe's plugins are Java programs, which do not run here", file=sys.stderr)
        return 1
    if processes.running() is not None:
        print("TorchServe is already running, please use torchserve --stop to stop TorchServe.")
        return 1
    try:
        settings = _settings(options)
    except ConfigurationError as e:
        print(f"Invalid configuration: {e}")
        return 1
    if not settings.model_store:
        print("Missing mandatory parameter --model-store")
        return 1
    if not os.path.isdir(settings.model_store):
        print(f"--model-store directory not found: {settings.model_store}")
        return 1
    if options.workflow_store and not os.path.isdir(options.workflow_store):
        print(f"--workflow-store directory not found: {options.workflow_store}")
        return 1
    return _start(settings, options.foreground)


def _settings(options: argparse.Namespace) -> Settings:
    values: dict[str, str] = {}
    file = os.environ.get("TS_CONFIG_FILE") or options.ts_config
    if file:
        if not os.path.isfile(file):
            raise ConfigurationError(f"--ts-config file not found: {file}")
        values = read_properties(Path(file).read_text(encoding="utf-8"))
    else:
        folder = Path(os.environ.get("LOG_LOCATION", "logs")) / "config"
        kept = snapshots.last(folder) if not options.no_config_snapshots or folder.exists() else None
        if kept is not None:
            values = snapshots.read(kept)
        elif os.path.isfile("config.properties"):
            values = snapshots.read(Path("config.properties"))
    if options.model_store:
        values["model_store"] = options.model_store
    if options.workflow_store:
        values["workflow_store"] = options.workflow_store
    if options.models:
        values["load_models"] = ",".join(options.models)
        values.pop("model_snapshot", None)
    if options.enable_model_api:
        values["enable_model_api"] = "true"
    if options.disable_token_auth:
        values["disable_token_authorization"] = "true"
    return Settings(values, snapshots=not options.no_config_snapshots)


def _start(settings: Settings, foreground: bool) -> int:
    """Run the server in this process, or in a background process that outlives it."""
    if not foreground:
        pid = os.fork()
        if pid:
            processes.note(pid)
            return 0
        os.setsid()
    else:
        processes.note(os.getpid())
    code = 0
    try:
        naming.above("serve.server").run(settings)  # needs optional packages
    except (ConfigurationError, OSError) as e:
        print(f"Invalid configuration: {e}", flush=True)
        code = 1
    except ServeError as e:  # a model of the snapshot has gone, or is damaged
        print(e.message, flush=True)
        code = 1
    finally:
        processes.forget(os.getpid())
    if not foreground:
        sys.stdout.flush()
        os._exit(code)
    return code


def _stop(wait: bool) -> int:
    pid = processes.running()
    if pid is None:
        print("TorchServe is not currently running.")
        return 0
    if not processes.end(pid, 60 if wait else 0) and wait:
        print("Stopping TorchServe took too long.")
    else:
        print("TorchServe has stopped.")
    processes.forget()
    Path("key_file.json").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(torchserve())
