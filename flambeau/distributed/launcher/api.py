"""Elastic workers from inside a program.

>>> config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0")
>>> elastic_launch(config, train)(arguments)      # {0: what rank 0 returned, 1: what rank 1 returned}
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..elastic.agent.server import Agent, WorkerSpec
from ..elastic.multiprocessing import LogsSpecs, Std, handled_signals
from ..elastic.rendezvous import RendezvousParameters, get_rendezvous_handler
from ..elastic.rendezvous.api import parse_endpoint

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]


@dataclass
class LaunchConfig:
    """Settings for the launch of workers."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    event_log_handler: str = "null"
    local_addr: str | None = None
    redirects: Std | dict[int, Std] = Std.NONE
    tee: Std | dict[int, Std] = Std.NONE
    log_dir: str | None = None
    signals_to_handle: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    shutdown_timeout: float | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.shutdown_timeout is None:
            self.shutdown_timeout = float(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", 30))
        self.rdzv_configs.setdefault("timeout", 900 if self.rdzv_timeout == -1 else self.rdzv_timeout)
        if self.logs_specs is None:
            self.logs_specs = LogsSpecs(self.log_dir, self.redirects, self.tee)


class elastic_launch:
    """Launches a function, or a command, on this node."""

    def __init__(self, config: LaunchConfig, entrypoint: Callable | str | None) -> None:
        self._config, self._entrypoint = config, entrypoint

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args))


def _failure_name(entrypoint: Callable | str | None, args: list[Any]) -> str:
    """Return the name that a failure is reported under: the script, not the interpreter that runs it."""
    if callable(entrypoint):
        return entrypoint.__qualname__
    for argument in args:
        text = str(argument)
        if not text.startswith("-") and text != "flambeau":
            return text
    return str(entrypoint)


def launch_agent(config: LaunchConfig, entrypoint: Callable | str | None, args: list[Any]) -> dict[int, Any]:
    """Run workers on this node until they are done; return their results by rank."""
    if entrypoint is None:
        raise ValueError("launch_agent(): there is nothing to launch")
    run_id = config.run_id or uuid.uuid4().hex
    configs = dict(config.rdzv_configs)
    endpoint = config.rdzv_endpoint
    if config.rdzv_backend == "static" and not endpoint:
        endpoint = "127.0.0.1:29500"
    if parse_endpoint(endpoint, 29400)[1] == 0 and config.rdzv_backend == "c10d":
        configs.setdefault("is_host", True)
    parameters = RendezvousParameters(
        config.rdzv_backend, endpoint, run_id, config.min_nodes, config.max_nodes, config.local_addr, **configs
    )
    assert config.logs_specs is not None and config.shutdown_timeout is not None
    with handled_signals(config.signals_to_handle):
        spec = WorkerSpec(
            config.role, config.nproc_per_node, get_rendezvous_handler(parameters), entrypoint, tuple(args),
            config.max_restarts, config.monitor_interval, config.start_method, config.logs_specs, config.signals_to_handle,
            config.shutdown_timeout, config.virtual_local_rank, _failure_name(entrypoint, args),
        )  # fmt: skip
        return Agent(spec).run()
