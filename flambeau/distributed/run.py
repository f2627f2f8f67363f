"""`flambeau torchrun`: start the ranks of a program on this machine, and start them again when something fails.

    flambeau torchrun --nproc-per-node 2 train.py --lr 0.1
    flambeau torchrun --nnodes 1:4 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint host:29400 --max-restarts 3 train.py

Every option can be given as an environment variable, too: PET_ and its name (PET_NPROC_PER_NODE=2).
"""

from __future__ import annotations

import argparse
import logging
import os
import runpy
import sys
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from ..compat.as_torch import posing
from ..core import naming
from .elastic.multiprocessing import LogsSpecs, SignalException, Std
from .elastic.multiprocessing.errors import ChildFailedError, record
from .elastic.multiprocessing.workers import python_command
from .launcher.api import LaunchConfig, elastic_launch

logger = logging.getLogger(__name__)
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


def get_args_parser() -> argparse.ArgumentParser:
    """Return the command-line parser of torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun", description="Torch Distributed Elastic Training Launcher")

    def option(
        name: str, default: Any = None, help: str = "", kind: Any = str, choices: Any = None, short: str = ""
    ) -> None:
        old = name.replace("-", "_")
        names = ([short] if short else []) + [f"--{name}"] + ([f"--{old}"] if old != name else [])
        told = os.environ.get(f"PET_{old.upper()}")
        value = default if told is None else told
        parser.add_argument(*names, type=kind, default=value, choices=choices, help=help)

    def flag(name: str, help: str, short: str = "", variable: str = "") -> None:
        old = name.replace("-", "_")
        names = ([short] if short else []) + [f"--{name}"] + ([f"--{old}"] if old != name else [])
        told = os.environ.get(f"PET_{(variable or old).upper()}", "0")
        parser.add_argument(*names, action="store_true", default=told == "1", help=help)

    option("nnodes", "1:1", "how many nodes, or <least>:<most>")
    option("nproc-per-node", "1", "workers on each node: a number, auto, cpu or gpu")
    option("rdzv-backend", "static", "where the nodes meet: static, c10d")
    option("rdzv-endpoint", "", "address of the meeting place: <host>:<port>")
    option("rdzv-id", "none", "name of the job")
    option("rdzv-conf", "", "settings of the rendezvous: <key>=<value>,...")
    flag("standalone", "one node with a rendezvous of its own on a free port; other rendezvous options are ignored")
    option("max-restarts", 0, "how often the workers may be started again", int)
    option("monitor-interval", 0.1, "seconds between looks at the workers", float)
    option(
        "start-method", "spawn", "how workers that are functions are started", choices=["spawn", "fork", "forkserver"]
    )
    option("event-log-handler", "null", "name of a handler for events")
    option("role", "default", "role of the workers")
    flag("module", "the program is a module, as in python -m", "-m")
    flag("no-python", "the program is no Python program: it is executed directly")
    flag("run-path", "run the program in the worker's interpreter with runpy.run_path")
    option("log-dir", None, "directory for log files; a subdirectory is made for the job")
    option(
        "redirects",
        "0",
        "streams that go to files: 3 for all, 0:1,1:2 for stdout of worker 0 and stderr of worker 1",
        short="-r",
    )
    option("tee", "0", "streams that go to files and to the screen", short="-t")
    option("local-ranks-filter", "", "workers whose output is shown: 0,1,2")
    option("duplicate-stdout-filters", "", "words; lines of stdout with one of them are copied to a file")
    option("duplicate-stderr-filters", "", "words; lines of stderr with one of them are copied to a file")
    option("node-rank", 0, "number of this node, for the static rendezvous", int)
    option("master-addr", "127.0.0.1", "address of node 0, for the static rendezvous")
    option("master-port", 29500, "port of node 0, for the static rendezvous", int)
    option("local-addr", None, "address of this node")
    option("logs-specs", None, "name of an entry point of the group torchrun.logs_specs")
    option("numa-binding", None, "bind workers to CPUs", choices=["node", "socket", "exclusive", "core-complex"])
    option("signals-to-handle", SIGNALS, "signals after which the workers are ended")
    option("shutdown-timeout", None, "seconds between asking workers to end and killing them", float)
    flag("virtual-local-rank", "every worker has LOCAL_RANK 0")
    parser.add_argument("training_script", type=str, help="the program")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: Sequence[str] | None) -> argparse.Namespace:
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """Parse the number of nodes, `2` or `1:4`, into the least and the most."""
    parts = nnodes.split(":")
    if len(parts) not in (1, 2) or not all(part.isdigit() for part in parts):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """Return the number of local processes: a number, or `auto`, `cpu` or `gpu` for this machine's."""
    try:
        return int(nproc_per_node)
    except ValueError:
        gpus = naming.above("cuda").device_count() if nproc_per_node in ("gpu", "auto") else 0
        if gpus:
            return gpus
        if nproc_per_node in ("cpu", "auto"):
            return os.cpu_count() or 1
        if nproc_per_node in ("gpu", "xpu"):
            raise ValueError(f"nproc_per_node={nproc_per_node}: CUDA is not available.") from None
        raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}") from None


def _parse_rendezvous_config(text: str) -> dict[str, str]:
    config = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip() or not value.strip():
            raise ValueError(f"The rendezvous configuration option '{pair}' must be in the form <key>=<value>")
        config[key.strip()] = value.strip()
    return config


def _split_at_commas(text: str) -> list[str] | None:
    """Split a text at commas; two commas stand for one."""
    return [w.replace("\0", ",") for w in text.replace(",,", "\0").split(",")] if text else None


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, Callable | str, list[str]]:
    """Return the configuration for parsed command-line arguments."""
    least, most = parse_min_max_nnodes(str(args.nnodes))
    if not 0 < least <= most:
        raise AssertionError("min_nodes must be less than or equal to max_nodes")
    if args.max_restarts < 0:
        raise AssertionError("max_restarts must be greater than or equal to 0")
    if args.numa_binding or args.logs_specs:
        raise NotImplementedError("torchrun: --numa-binding and --logs-specs are not supported yet")
    count = determine_local_world_size(args.nproc_per_node)
    if "OMP_NUM_THREADS" not in os.environ and count > 1:
        logger.warning(
            "\n*****************************************\nSetting OMP_NUM_THREADS environment variable for each process to be 1 in"
            " default, to avoid your system being overloaded, please further tune the variable for optimal performance in your"
            " application as needed. \n*****************************************"
        )
        os.environ["OMP_NUM_THREADS"] = "1"
    ranks = {int(r) for r in args.local_ranks_filter.split(",")} if args.local_ranks_filter else None
    logs = LogsSpecs(
        args.log_dir, Std.from_str(args.redirects), Std.from_str(args.tee), ranks,
        _split_at_commas(args.duplicate_stdout_filters), _split_at_commas(args.duplicate_stderr_filters),
    )  # fmt: skip
    settings = _parse_rendezvous_config(args.rdzv_conf)
    endpoint, backend, run_id = args.rdzv_endpoint, args.rdzv_backend, args.rdzv_id
    if args.standalone:
        endpoint, backend, run_id = "localhost:0", "c10d", str(uuid.uuid4())
    elif backend == "static":
        settings["rank"] = str(args.node_rank)
        endpoint = endpoint or f"{args.master_addr}:{args.master_port}"
    config = LaunchConfig(
        least, most, count, logs, run_id, args.role, endpoint, backend, settings, max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval, start_method=args.start_method, local_addr=args.local_addr,
        signals_to_handle=args.signals_to_handle, virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
    )  # fmt: skip
    return config, *_entrypoint(args)


def _entrypoint(args: argparse.Namespace) -> tuple[Callable | str, list[str]]:
    if args.run_path:
        return run_script_path, [args.training_script, *args.training_script_args]
    if args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        return args.training_script, list(args.training_script_args)
    command = python_command(args.training_script, args.training_script_args, args.module)
    return command[0], command[1:]


def run_script_path(training_script: str, *training_script_args: str) -> None:
    """Run a script as a worker of --run-path."""
    posing.install_as_torch()
    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def run(args: argparse.Namespace) -> None:
    config, entrypoint, arguments = config_from_args(args)
    elastic_launch(config, entrypoint)(*arguments)


def run_and_report(args: argparse.Namespace) -> None:
    """Run the workers; report their failure as a table on stderr and an exit code."""
    logging.basicConfig(format="%(levelname).1s %(asctime)s %(process)d %(name)s] %(message)s", level=logging.WARNING)
    try:
        run(args)
    except SignalException as problem:
        print(problem, file=sys.stderr)
        sys.exit(128 + problem.sigval)
    except ChildFailedError as problem:
        print(problem, file=sys.stderr)
        sys.exit(1)


@record
def main(args: Sequence[str] | None = None) -> None:
    """Run the command `flambeau torchrun`."""
    run_and_report(parse_args(args))


if __name__ == "__main__":
    main()
