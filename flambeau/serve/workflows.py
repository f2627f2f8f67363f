"""Workflows: graphs of models and functions, each with the answers of others as inputs."""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from . import bounded_json
from .archive_reader import ModelArchive, WorkflowArchive, file_name_of, is_url, open_workflow
from .bodies import body_parameters
from .checks import MOST
from .errors import (
    BadRequestException,
    ConflictStatusException,
    InternalServerException,
    InvalidWorkflowException,
    ServeError,
    WorkflowNotFoundException,
)
from .http import Connection, Request
from .job import CallbackJob, Parameters
from .models import Model, Owner
from .registry import Registration, Registry, paged
from .settings import ModelSettings, Settings

_DEFAULTS = {
    "min-workers": 1, "max-workers": 1, "batch-size": 1, "max-batch-delay": 50, "retry-attempts": 1, "timeout-ms": 10_000,
}  # fmt: skip


@dataclass
class WorkflowNode:
    """A model or function of a workflow."""

    name: str
    model: str
    url: str | None
    options: dict[str, int]


class Workflow:
    """A workflow's nodes and edges, checked to be acyclic."""

    def __init__(self, archive: WorkflowArchive):
        self.archive = archive
        models = archive.specification.get("models")
        dag = archive.specification.get("dag")
        if not isinstance(models, dict) or not isinstance(dag, dict) or not dag:
            raise InvalidWorkflowException("A workflow has `models` and a `dag`.")
        self.options = {key: self._number(models, key, default) for key, default in _DEFAULTS.items()}
        self.parents: dict[str, set[str]] = {}
        for name, children in dag.items():
            self.parents.setdefault(str(name), set())
            for child in children or ():
                if child and str(child).strip():
                    self.parents.setdefault(str(child), set()).add(str(name))
        self.dag = {str(k): [str(c) for c in v or ()] for k, v in dag.items()}
        self.nodes = {name: self._node(name, models.get(name)) for name in self.parents}
        self.sorter().prepare()

    @staticmethod
    def _number(values: dict[str, Any], key: str, default: int) -> int:
        value = values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidWorkflowException(f"{key} of a workflow is a whole number, got {value!r}")
        if abs(value) > MOST:
            raise InvalidWorkflowException(f"{key} of a workflow is at most {MOST}")
        return value

    def _node(self, name: str, entry: Any) -> WorkflowNode:
        model = f"{self.archive.name}__{name}"
        if isinstance(entry, dict):
            if not isinstance(entry.get("url"), str):
                raise InvalidWorkflowException(f"Model {name} of the workflow has no url.")
            return WorkflowNode(
                name, model, entry["url"], {k: self._number(entry, k, d) for k, d in self.options.items()}
            )
        if self.archive.handler is None:
            raise InvalidWorkflowException(f"{name} is no model, and the workflow has no handler with such a function.")
        return WorkflowNode(
            name,
            model,
            None,
            {**self.options, "min-workers": 1, "max-workers": 1, "batch-size": 1, "max-batch-delay": 0},
        )

    def sorter(self) -> TopologicalSorter[str]:

        sorter = TopologicalSorter(self.parents)
        try:
            list(TopologicalSorter(self.parents).static_order())
        except CycleError as e:
            raise InvalidWorkflowException("The workflow's graph has a circle.") from e
        return sorter

    def leaves(self) -> list[str]:
        inner = {p for parents in self.parents.values() for p in parents}
        return [name for name in self.parents if name not in inner]

    def words(self) -> dict[str, Any]:
        dag = ", ".join(f"{k}=[{', '.join(v)}]" for k, v in self.dag.items())
        options = self.options
        return {
            "workflowName": self.archive.name,
            "workflowUrl": self.archive.url,
            "minWorkers": options["min-workers"],
            "maxWorkers": options["max-workers"],
            "batchSize": options["batch-size"],
            "maxBatchDelay": options["max-batch-delay"],
            "workflowDag": f"{{{dag}}}",
        }


class Workflows:
    """The registered workflows."""

    def __init__(self, registry: Registry, settings: Settings, owner: Owner):
        self.registry, self.settings, self.owner = registry, settings, owner
        self.workflows: dict[str, Workflow] = {}

    def _get(self, name: str) -> Workflow:
        if name not in self.workflows:
            raise WorkflowNotFoundException(f"Workflow not found: {name}")
        return self.workflows[name]

    def page(self, limit: int, token: int) -> dict[str, Any]:
        return paged(sorted(self.workflows), limit, token, "workflows", "workflowName", "workflowUrl",
                     lambda n: self.workflows[n].archive.url)  # fmt: skip

    def describe(self, name: str) -> list[dict[str, Any]]:
        return [self._get(name).words()]

    async def register(self, url: Any, name: Any, values: dict[str, Any]) -> tuple[int, str]:
        """Register a workflow and all its models."""
        if not isinstance(url, str):
            raise BadRequestException("Parameter url is required.")
        if name is not None and not isinstance(name, str):
            raise BadRequestException("Parameter workflow_name is a string.")
        settings = self.settings
        archive = await asyncio.to_thread(
            open_workflow, url, settings.workflow_store, settings.allowed_urls, name, work=self.owner.work_folder
        )
        try:
            workflow = Workflow(archive)
            if archive.name in self.workflows:
                raise ConflictStatusException(f"Workflow {archive.name} is already registered.")
            self.workflows[archive.name] = workflow
        except BaseException:
            archive.clean()
            raise
        done = await asyncio.gather(
            *(self._start(workflow, n, values) for n in workflow.nodes.values()), return_exceptions=True
        )
        failed = [str(e) for e in done if isinstance(e, BaseException)]
        if failed:
            await self._remove(workflow)
            raise InternalServerException(
                f"Workflow {archive.name} has failed to register. Failures: {json.dumps(failed)}"
            )
        return 200, f"Workflow {archive.name} has been registered and scaled successfully."

    async def _start(self, workflow: Workflow, node: WorkflowNode, values: dict[str, Any]) -> None:
        try:
            if node.url is None:
                await self._start_function(workflow, node)
                return
            options = node.options
            asked = Registration(
                node.url, node.model, batch_size=options["batch-size"], max_batch_delay=options["max-batch-delay"],
                initial_workers=options["max-workers"],
                response_timeout=int(values["response_timeout"]) if "response_timeout" in values else None,
                startup_timeout=int(values["startup_timeout"]) if "startup_timeout" in values else None,
            )  # fmt: skip
            await self.registry.register(asked, in_workflow=True)
        except (ServeError, ValueError) as e:
            raise InternalServerException(f"Workflow Node {node.model} failed to register. Details: {e}") from e

    async def _start_function(self, workflow: Workflow, node: WorkflowNode) -> None:
        handler = workflow.archive.handler
        assert handler is not None  # checked when the workflow was made
        entry = {"modelName": node.model, "modelVersion": "1.0", "handler": f"{handler.name}:{node.name}"}
        archive = ModelArchive(None, workflow.archive.folder, {"runtime": "python", "model": entry})
        model = Model(archive, ModelSettings(max_batch_delay=0), self.owner)
        model.in_workflow = True
        self.registry.insert(model)
        code = await model.scale(1, 1)
        if code != 200:
            raise InternalServerException(f"Failed to start workers for model {node.model}")

    async def unregister(self, name: str) -> tuple[int, str]:
        await self._remove(self._get(name))
        return 200, f'Workflow "{name}" unregistered'

    async def _remove(self, workflow: Workflow) -> None:
        self.workflows.pop(workflow.archive.name, None)
        for node in workflow.nodes.values():
            if node.model in self.registry.models:
                await self.registry.unregister(node.model, None)
        workflow.archive.clean()
        if is_url(workflow.archive.url) and self.settings.workflow_store:
            (Path(self.settings.workflow_store) / file_name_of(workflow.archive.url)).unlink(missing_ok=True)

    # -- answering --

    async def answer(self, connection: Connection, request: Request, name: str) -> None:
        """Answer with the result of the last node, or with those of several last nodes by name."""
        workflow = self._get(name)
        outputs = await self._run(workflow, body_parameters(request), request.headers)
        leaves = workflow.leaves()
        if len(leaves) == 1:
            connection.send(200, outputs[leaves[0]])
            return
        try:
            joined = {leaf: bounded_json.loads(outputs[leaf]) for leaf in leaves}
        except ValueError as e:
            raise InternalServerException("A workflow with several answers needs them to be JSON.") from e
        connection.send(200, json.dumps(joined, indent=2).encode() + b"\n")

    async def _run(self, workflow: Workflow, parameters: Parameters, headers: dict[str, str]) -> dict[str, bytes]:
        sorter = workflow.sorter()
        sorter.prepare()
        outputs: dict[str, bytes] = {}
        running: dict[asyncio.Task[bytes], str] = {}
        try:
            while sorter.is_active():
                for name in sorter.get_ready():
                    parents = sorted(workflow.parents[name])
                    given = [("body" if len(parents) == 1 else p, "", outputs[p]) for p in parents] or parameters
                    running[asyncio.ensure_future(self._invoke(workflow.nodes[name], given, headers))] = name
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    name = running.pop(task)
                    outputs[name] = task.result()
                    sorter.done(name)
        finally:
            for task in running:
                task.cancel()
        return outputs

    async def _invoke(self, node: WorkflowNode, parameters: Parameters, headers: dict[str, str]) -> bytes:
        attempts = node.options["retry-attempts"]
        for _ in range(attempts + 1):
            try:
                return await asyncio.wait_for(self._once(node, parameters, headers), node.options["timeout-ms"] / 1000)
            except (asyncio.TimeoutError, InternalServerException):
                continue
        raise InternalServerException(f"Error executing {node.name}")

    async def _once(self, node: WorkflowNode, parameters: Parameters, headers: dict[str, str]) -> bytes:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def reply(status: int, phrase: str, kind: str, response: dict[str, str], body: bytes, more: bool) -> None:
            if not future.done() and not more:
                future.set_result(body)

        def fail(status: int, message: str) -> None:
            if not future.done():
                future.set_exception(InternalServerException(message))

        job = CallbackJob(str(uuid.uuid4()), headers, list(parameters), reply, fail, lambda: not future.done())
        if not self.registry.get(node.model).submit(job):
            raise InternalServerException(f"{node.name} has no worker or its queue is full")
        return await future
