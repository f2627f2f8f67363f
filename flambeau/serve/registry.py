"""Registry of models by name and version, and the operations that clients may perform on them."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive_reader import RUNTIMES, ModelArchive, check_name, file_name_of, is_url, open_model
from .errors import (
    BadRequestException,
    ConflictStatusException,
    InternalServerException,
    InvalidModelVersionException,
    ModelException,
    ModelNotFoundException,
    ModelVersionNotFoundException,
)
from .models import Model, Owner
from .settings import ModelSettings

logger = logging.getLogger("flambeau.serve.registry")


@dataclass
class Registration:
    """A client's request to register a model; None for values that it left out."""

    url: str | None
    model_name: str | None = None
    handler: str | None = None
    runtime: str | None = None
    batch_size: int | None = None
    max_batch_delay: int | None = None
    response_timeout: int | None = None
    startup_timeout: int | None = None
    initial_workers: int | None = None
    synchronous: bool = True


class Versions:
    """The versions of one model, one of them the default."""

    def __init__(self) -> None:
        self.by_version: dict[str, Model] = {}
        self.default = ""


class Registry:
    """All registered models. Its methods implement the operations of the REST and gRPC interfaces."""

    def __init__(self, owner: Owner):
        self.owner = owner
        self.models: dict[str, Versions] = {}
        self.at_startup: set[str] = set()

    # -- finding --

    def get(self, name: str, version: str | None = None) -> Model:
        """Return the model of this name and version, or of its default version."""
        versions = self.models.get(name)
        if versions is None:
            raise ModelNotFoundException(f"Model not found: {name}")
        model = versions.by_version.get(version or versions.default)
        if model is None:
            raise ModelVersionNotFoundException(f"Model version: {version} does not exist for model: {name}")
        return model

    def all(self) -> list[Model]:
        return [m for versions in self.models.values() for m in versions.by_version.values()]

    def defaults(self) -> list[Model]:
        return [v.by_version[v.default] for v in self.models.values()]

    def describe(self, name: str, version: str | None) -> list[dict[str, Any]]:
        if version == "all":
            if name not in self.models:
                raise ModelNotFoundException(f"Model not found: {name}")
            found = list(self.models[name].by_version.values())
        else:
            found = [self.get(name, version)]
        return [m.describe(name in self.at_startup) for m in found]

    def page(self, limit: int, token: int) -> dict[str, Any]:
        """Return one page of the list of models, and the token of the next one."""
        names = sorted(n for n, v in self.models.items() if v.by_version[v.default].archive.url is not None)
        return paged(names, limit, token, "models", "modelName", "modelUrl", lambda n: self.get(n).archive.url)

    def healthy(self) -> bool:
        return all(sum(w.healthy for w in m.workers) >= m.min_workers for m in self.defaults())

    # -- changing --

    async def register(
        self, asked: Registration, *, in_workflow: bool = False, at_startup: bool = False
    ) -> tuple[int, str]:
        """Register a model and start its workers; return a status and a message for the client."""
        if asked.url is None:
            raise BadRequestException("Parameter url is required.")
        if asked.runtime is not None and asked.runtime not in RUNTIMES:
            raise BadRequestException(f"Invalid RuntimeType value: {asked.runtime}")
        if asked.model_name:
            check_name(asked.model_name, BadRequestException)
        self._check_workers("initial_workers", asked.initial_workers or 0)
        archive = await self.open_archive(asked)
        model = await self.add(archive, asked)
        model.in_workflow = in_workflow
        minimum, maximum = self.workers_wanted(model, asked)
        title = f'Model "{model.name}" Version: {model.version} registered with'
        if minimum <= 0:
            if not in_workflow:
                self.owner.changed()
            return 200, f"{title} 0 initial workers. Use scale workers API to add workers for the model."
        if not asked.synchronous:  # a model that cannot be loaded stays registered, and is tried again
            self.owner.background(self._scale(model, minimum, maximum))
            return 202, "Processing worker updates..."
        await self._start_registered(model, minimum, maximum, in_workflow)
        return 200, f"{title} {minimum} initial workers"

    async def _start_registered(self, model: Model, minimum: int, maximum: int, in_workflow: bool) -> None:
        code = await model.scale(minimum, maximum)
        if code != 200:
            await self._remove(model)
            raise _not_started(model, code)
        if not in_workflow:
            self.owner.changed()

    async def open_archive(self, asked: Registration) -> ModelArchive:
        settings = self.owner.settings
        return await asyncio.to_thread(
            open_model, asked.url, settings.model_store, settings.allowed_urls, name=asked.model_name,
            default_name=default_name(asked.url or ""), handler=asked.handler, runtime=asked.runtime,
            default_handler=settings.text("default_service_handler"), envelope=settings.text("service_envelope"),
            work=self.owner.work_folder,
        )  # fmt: skip

    async def add(self, archive: ModelArchive, asked: Registration) -> Model:
        keys = ("batch_size", "max_batch_delay", "response_timeout", "startup_timeout")
        try:
            wanted = {k: getattr(asked, k) for k in keys}
            settings = await asyncio.to_thread(ModelSettings.of, archive, self.owner.settings, wanted)
            if settings.batch_size < 1 or settings.max_batch_delay < 0:
                raise BadRequestException("batch_size is at least 1 and max_batch_delay at least 0.")
            self._check_workers(
                "maxWorkers", max(settings.min_workers, settings.max_workers) * max(settings.parallel_level, 1)
            )
            model = Model(archive, settings, self.owner)
            self.insert(model)
        except BaseException:
            archive.clean()
            raise
        try:
            await self._install(model)
        except BaseException:
            await self._remove(model)
            raise
        return model

    def _check_workers(self, name: str, count: int) -> None:
        most = self.owner.settings.max_workers
        if count > most:
            raise BadRequestException(f"{name} is at most {most}, got {count}: max_workers_per_model of the settings.")

    def insert(self, model: Model) -> None:
        versions = self.models.get(model.name) or Versions()
        if model.version in versions.by_version:
            raise ConflictStatusException(f"Model version {model.version} is already registered for model {model.name}")
        versions.by_version[model.version] = model
        versions.default = versions.default or model.version
        self.models[model.name] = versions

    def workers_wanted(self, model: Model, asked: Registration) -> tuple[int, int]:
        own = model.settings
        if own.min_workers > 0 and own.max_workers >= own.min_workers:
            return own.min_workers, own.max_workers
        initial = asked.initial_workers
        if initial is None:
            initial = self.owner.settings.number("default_workers_per_model", 0)
        return initial, initial

    async def _install(self, model: Model) -> None:
        """Create the model's environment and install its packages, if it asks for them and the server allows it. They go to the model's
        temporary folder: a model may be a folder of the store, which the server must not write to."""
        requirements, work = model.archive.model.get("requirementsFile"), model.archive.temporary
        if work is None:
            return
        if model.settings.use_venv:
            command = [sys.executable, "-m", "venv", "--system-site-packages", str(work / "venv")]
            await _command(command, f"Virtual environment creation failed for model {model.name}")
            model.python = str(work / "venv" / "bin" / "python")
            _share_packages(work / "venv")
        if not requirements or not self.owner.settings.flag("install_py_dep_per_model", False):
            return
        target = [] if model.python else ["-t", str(work / "packages")]
        file = str(model.archive.inside(requirements))
        command = [model.python or sys.executable, "-m", "pip", "install", "-q", "-U", *target, "-r", file]
        await _command(command, f"Custom pip package installation failed for model {model.name}")
        if target:
            model.packages = [target[1]]

    async def scale(
        self, name: str, version: str | None, minimum: int, maximum: int, synchronous: bool
    ) -> tuple[int, str]:
        """Change the number of a model's workers."""
        if maximum < minimum:
            raise BadRequestException("max_worker cannot be less than min_worker.")
        model = self.get(name, version)
        if minimum < 0:
            raise InternalServerException(f"min_worker cannot be {minimum}")
        self._check_workers("max_worker", maximum)
        if not synchronous:
            self.owner.background(self._scale(model, minimum, maximum))
            return 202, "Processing worker updates..."
        code = await self._scale(model, minimum, maximum)
        if code != 200:
            raise _not_started(model, code)
        return 200, f"Workers scaled to {minimum} for model: {name}" + (f", version: {version}" if version else "")

    async def _scale(self, model: Model, minimum: int, maximum: int) -> int:
        code = await model.scale(minimum, maximum)
        if not model.in_workflow:
            self.owner.changed()
        return code

    def set_default(self, name: str, version: str) -> str:
        if name not in self.models:
            raise ModelNotFoundException(f"Model not found: {name}")
        versions = self.models[name]
        if version not in versions.by_version:
            raise ModelVersionNotFoundException(f"Model version {version} does not exist for model {name}")
        versions.default = version
        self.owner.changed()
        return f'Default version successfully updated for model "{name}" to "{version}"'

    async def unregister(self, name: str, version: str | None) -> None:
        """Remove a version from service; the default one only if it is the last."""
        versions = self.models.get(name)
        if versions is None:
            raise ModelNotFoundException(f"Model not found: {name}")
        version = version or versions.default
        if version not in versions.by_version:
            raise ModelVersionNotFoundException(f"Model version: {version} does not exist for model: {name}")
        if version == versions.default and len(versions.by_version) > 1:
            raise InvalidModelVersionException(f"Cannot remove default version for model {name}")
        model = versions.by_version[version]
        await self._remove(model)
        self.at_startup.discard(name)
        url = model.archive.url
        if url and is_url(url) and self.owner.settings.model_store:
            (Path(self.owner.settings.model_store) / file_name_of(url)).unlink(missing_ok=True)
        if not model.in_workflow:
            self.owner.changed()

    async def _remove(self, model: Model) -> None:
        versions = self.models.get(model.name)
        if versions and versions.by_version.get(model.version) is model:
            del versions.by_version[model.version]
            if not versions.by_version:
                del self.models[model.name]
            elif versions.default == model.version:
                versions.default = next(iter(versions.by_version))
        await model.close()

    async def close(self) -> None:
        await asyncio.gather(*(m.close() for m in self.all()))


def _not_started(model: Model, code: int) -> InternalServerException:
    reason = f": {model.why}" if model.why else ""
    message = f"Failed to start workers for model {model.name} version: {model.version}{reason}"
    return InternalServerException(message, 507 if code in (413, 507) else code)


def _share_packages(environment: Path) -> None:
    """Add the server's packages to a new environment, after its own."""
    (folder,) = (environment / "lib").glob("python*/site-packages")
    seen = [p for p in sys.path if p.rstrip("/").endswith(("site-packages", "dist-packages"))]
    (folder / "server.pth").write_text("".join(f"{p}\n" for p in seen))


async def _command(command: list[str], message: str) -> None:
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
    if done.returncode != 0:
        logger.error("%s:\n%s%s", message, done.stdout, done.stderr)
        raise ModelException(message)


def default_name(url: str) -> str:
    """Derive a model's name from the name of its file."""
    stem = url.rsplit("/", 1)[-1]
    if ".mar" in stem or ".model" in stem:
        stem = stem.rsplit(".", 1)[0]
    return re.sub(r"\W|^_", "_", stem)


def paged(
    names: list[str], limit: int, token: int, title: str, name_key: str, url_key: str,
    url_of: Callable[[str], str | None],
) -> dict[str, Any]:  # fmt: skip
    """Return one page of a list, in the form of TorchServe's lists of models and workflows."""
    limit = 100 if limit > 100 or limit < 0 else limit
    token = max(token, 0)
    last = token + limit
    result: dict[str, Any] = {}
    if last <= len(names):
        result["nextPageToken"] = str(last)
    result[title] = [{name_key: n, url_key: url_of(n)} for n in names[token : min(last, len(names))]]
    return result
