"""Agent: takes part in the rendezvous, starts and monitors its workers; after a failure, or when nodes join, a new round begins."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from ....errors import DistNetworkError, DistStoreError
from ...multiprocessing import LogsSpecs, RunResult, SignalException, Workers
from ...multiprocessing.errors import ChildFailedError, ProcessFailure
from ...rendezvous import RendezvousClosedError, RendezvousConnectionError, RendezvousHandler, RendezvousInfo

logger = logging.getLogger(__name__)


@dataclass
class WorkerSpec:
    """Description of the workers that an agent runs."""

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    entrypoint: Callable | str
    args: tuple = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    logs: LogsSpecs = field(default_factory=LogsSpecs)
    signals: str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    shutdown_timeout: float = 30.0
    virtual_local_rank: bool = False
    name: str = ""


class Agent:
    """Runs workers until they are done, or have failed too often."""

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300.0):
        self.spec, self.exit_barrier_timeout = spec, exit_barrier_timeout
        self.restarts = 0  # after failures, of all agents together
        self.workers: Workers | None = None
        self.attempt = 0
        self.info: RendezvousInfo | None = None
        self.ranks: dict[int, int] = {}

    def run(self) -> dict[int, Any]:
        """Run the workers; return their results by rank. Raises ChildFailedError."""
        try:
            return self._run()
        except SignalException as problem:
            self._end_workers(problem.sigval)
            self.spec.rdzv_handler.leave()  # the others can continue
            raise
        except BaseException:
            self._end_workers(signal.SIGTERM)
            self.spec.rdzv_handler.shutdown()
            raise

    def _run(self) -> dict[int, Any]:
        self._start_workers()
        while True:
            time.sleep(self.spec.monitor_interval)
            assert self.workers is not None
            result = self.workers.poll()
            if result is None:
                if self.spec.rdzv_handler.num_nodes_waiting() > 0:
                    logger.info("[%s] nodes have come or gone: a new round begins", self.spec.role)
                    self._restart()
            elif result.is_failed():
                self._count_failure(result)
                self._restart()
            elif self._await_other_agents():
                self._end_workers(signal.SIGTERM)
                self.spec.rdzv_handler.shutdown()
                return {self.ranks[rank]: value for rank, value in result.return_values.items()}

    def _count_failure(self, result: RunResult) -> None:
        """Count a restart if this agent's workers failed first. The workers of others fail as a consequence (or because a node has joined
        or left), and their agents see that another has left the round already."""
        handler = self.spec.rdzv_handler
        if handler.is_closed():
            raise self._make_failure(result)
        if handler.num_nodes_waiting() > 0:
            return
        if self.restarts >= self.spec.max_restarts:
            raise self._make_failure(result)
        self.restarts += 1
        failures = ", ".join(f"{self.ranks[r]} (exit code {f.exitcode})" for r, f in result.failures.items())
        left = self.spec.max_restarts - self.restarts
        logger.warning("[%s] worker %s failed; %d restarts left", self.spec.role, failures, left)

    def _make_failure(self, result: RunResult) -> ChildFailedError:
        failures: dict[int, ProcessFailure] = {self.ranks[rank]: failure for rank, failure in result.failures.items()}
        return ChildFailedError(self.spec.name or str(self.spec.entrypoint), failures)

    def _restart(self) -> None:
        self._end_workers(signal.SIGTERM)
        self._start_workers()

    def _end_workers(self, number: int) -> None:
        if self.workers is not None:
            self.workers.end(number)
            self.workers = None

    # -- a round ----------------------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        told = None
        while told is None:
            self.info = info = self.spec.rdzv_handler.next_rendezvous()
            mine = {"role": self.spec.role, "size": self.spec.local_world_size, "restarts": self.restarts}
            info.store.set(f"agent/{info.rank}", json.dumps(mine))
            told = self._await_descriptions(info)
        self.restarts = max(t["restarts"] for t in told)
        environments = self._worker_environments(info, told)
        folder = os.path.join(self.spec.logs.run_dir(self.spec.rdzv_handler.get_run_id()), f"attempt_{self.attempt}")
        self.attempt += 1
        spec = self.spec
        self.workers = Workers(
            spec.entrypoint,
            spec.args,
            environments,
            spec.logs,
            folder,
            spec.role,
            spec.start_method,
            spec.shutdown_timeout,
        )

    def _await_descriptions(self, info: RendezvousInfo) -> list[dict] | None:
        """Return the descriptions that the agents of a round publish; None if one of them has left before."""
        names = [f"agent/{rank}" for rank in range(info.world_size)]
        deadline = time.monotonic() + info.store.timeout.total_seconds()
        while True:
            try:
                info.store.wait(names, timedelta(seconds=1))
                return [json.loads(text) for text in info.store.multi_get(names)]
            except DistStoreError:
                if not self.spec.rdzv_handler.everybody_is_there():
                    return None
                if time.monotonic() > deadline:
                    raise

    def _worker_environments(self, info: RendezvousInfo, told: list[dict]) -> dict[int, dict[str, str]]:
        """Return RANK and the related environment variables for every worker."""
        spec = self.spec
        first = sum(t["size"] for t in told[: info.rank])
        same = [t for t in told if t["role"] == spec.role]
        first_of_role = sum(t["size"] for t in told[: info.rank] if t["role"] == spec.role)
        common = {
            "GROUP_RANK": info.rank,
            "GROUP_WORLD_SIZE": info.world_size,
            "LOCAL_WORLD_SIZE": spec.local_world_size,
            "WORLD_SIZE": sum(t["size"] for t in told),
            "ROLE_NAME": spec.role,
            "ROLE_WORLD_SIZE": sum(t["size"] for t in same),
            "MASTER_ADDR": info.bootstrap_store_info.master_addr,
            "MASTER_PORT": info.bootstrap_store_info.master_port,
            "TORCHELASTIC_RESTART_COUNT": self.restarts,
            "TORCHELASTIC_MAX_RESTARTS": spec.max_restarts,
            "TORCHELASTIC_RUN_ID": spec.rdzv_handler.get_run_id(),
            "TORCHELASTIC_USE_AGENT_STORE": str(spec.rdzv_handler.use_agent_store),
            "TORCHELASTIC_SIGNALS_TO_HANDLE": spec.signals,
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }
        if "OMP_NUM_THREADS" in os.environ:
            common["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
        environments = {}
        self.ranks = {}
        for local in range(spec.local_world_size):
            self.ranks[local] = first + local
            own = {
                "LOCAL_RANK": 0 if spec.virtual_local_rank else local,
                "RANK": first + local,
                "ROLE_RANK": first_of_role + local,
            }
            environments[local] = {name: str(value) for name, value in {**common, **own}.items()}
        return environments

    def _await_other_agents(self) -> bool:
        """Wait for the other agents' workers, because a node that ends early would look dead. Returns False if a new round begins
        instead."""
        assert self.info is not None
        store, handler = self.info.store, self.spec.rdzv_handler
        deadline = time.monotonic() + self.exit_barrier_timeout
        try:
            if store.add("done", 1) == self.info.world_size:
                store.set("all done", "1")
            while time.monotonic() < deadline:
                with contextlib.suppress(DistStoreError):
                    store.wait(["all done"], timedelta(seconds=1))
                    return True
                if handler.num_nodes_waiting() > 0 and not store.check(["all done"]):
                    if handler.is_closed():
                        break  # another node has failed permanently
                    self._restart()
                    return False
        except (DistNetworkError, RendezvousConnectionError, RendezvousClosedError) as problem:
            logger.warning(
                "[%s] all workers here are done, but not all agents can be asked: %s", self.spec.role, problem
            )
        return True
