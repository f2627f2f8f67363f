"""Settings of a server: config.properties, TS_* of the environment, the command line; and model-config.yaml of a model."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import bounded_json
from .archive_reader import ModelArchive
from .certificates import from_files, server_context
from .certificates import from_keystore as _from_keystore
from .checks import MOST, check
from .errors import ConfigurationError, InvalidModelException

ADDRESS = re.compile(r"(?:(https?)://([^:/]+|\[[^\]]+\])(?::([0-9]+))?)|(?:unix:(/.*))", re.IGNORECASE)
SEQUENCE_KEYS = ("ts_request_sequence_id", "ts_request_sequence_start", "ts_request_sequence_end")
_DEFAULT_URLS = "file://.*|http(s)?://.*"
_ENVIRONMENT_KEYS = (
    "async_logging", "blacklist_env_vars", "certificate_file", "cors_allowed_headers", "cors_allowed_methods",
    "cors_allowed_origin", "decode_input_request", "default_response_timeout", "default_service_handler",
    "default_startup_timeout", "default_workers_per_model", "disable_system_metrics", "disable_token_authorization",
    "enable_grpc_ssl", "enable_metrics_api", "enable_model_api", "grpc_inference_address", "grpc_inference_port",
    "grpc_management_address", "grpc_management_port", "inference_address", "initial_worker_port",
    "install_py_dep_per_model", "job_queue_size", "keystore", "keystore_pass", "keystore_type", "limit_max_image_pixels",
    "load_models", "management_address", "max_request_size", "max_response_size", "metrics_address", "metrics_config",
    "metrics_mode", "model_metrics_auto_detect", "model_store", "number_of_gpu", "private_key_file", "service_envelope",
    "token_expiration_min", "unregister_model_timeout", "workflow_store",
)  # fmt: skip


def read_properties(text: str) -> dict[str, str]:
    """Parse a Java properties file: continued lines, escapes, `=`, `:` or space between key and value."""
    values: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        line = line.lstrip()
        if not line or line[0] in "#!":
            continue
        while len(line) - len(line.rstrip("\\")) & 1:
            line = line[:-1] + next(lines, "").lstrip()
        match = re.match(r"((?:\\.|[^\\=:\s])*)\s*[=:\s]?\s*(.*)", line, re.DOTALL)
        assert match is not None  # every part of the pattern may be empty
        values[_unescape(match[1])] = _unescape(match[2].rstrip())
    return values


def _unescape(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text, flags=re.DOTALL)


def write_properties(values: Mapping[str, str]) -> str:
    """Return a Java properties file with these keys and values."""

    def escape(text: str, special: str) -> str:
        text = re.sub(rf"([\\{special}])", r"\\\1", text).replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
        return re.sub(r"[^ -~]", lambda m: f"\\u{ord(m[0]):04x}", text)

    return "".join(f"{escape(k, '=: #!')}={escape(v, '=:#!')}\n" for k, v in values.items())


@dataclass(frozen=True)
class Address:
    """The address a server listens on: a host and port, or a Unix socket."""

    host: str
    port: int
    tls: bool = False
    path: str | None = None

    @classmethod
    def parse(cls, text: str, default_port: int) -> Address:
        match = ADDRESS.fullmatch(text.strip())
        if match is None:
            raise ConfigurationError(f"Invalid binding address: {text}")
        scheme, host, port, path = match.groups()
        if path:
            return cls("", 0, False, path)
        number = int(port) if port else (443 if scheme.lower() == "https" else default_port if scheme else 80)
        if not 0 <= number <= 65535:
            raise ConfigurationError(f"Invalid port number: {text}")
        return cls(host.strip("[]"), number, scheme.lower() == "https")

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"http{'s' * self.tls}://{self.host}:{self.port}"


class Settings:
    """The server's settings, under TorchServe's names; each property here is one that the server reads."""

    def __init__(self, values: Mapping[str, str] | None = None, *, snapshots: bool = True):
        self.values = dict(values or {})
        self.snapshots = snapshots
        self._insert_environment()
        if self.flag("enable_envvars_config", False):
            for key in _ENVIRONMENT_KEYS:
                if (value := os.environ.get(f"TS_{key.upper()}")) is not None:
                    self.values[key] = value
        if self.flag("use_env_allowed_urls", False) and os.environ.get("TS_ALLOWED_URLS"):
            self.values["allowed_urls"] = os.environ["TS_ALLOWED_URLS"]
        check(self)

    def _insert_environment(self) -> None:
        """Replace `$$NAME$$` in values by environment variables."""

        def one(match: re.Match[str]) -> str:
            if match[1] not in os.environ:
                raise ConfigurationError(f"Invalid Environment Variable {match[1]}")
            return os.environ[match[1]]

        for key, value in self.values.items():
            self.values[key] = re.sub(r"\$\$([^$]+[^$])\$\$", one, value)

    # -- by kind --

    def text(self, key: str, default: str | None = None) -> str | None:
        return self.values.get(key, default)

    def flag(self, key: str, default: bool) -> bool:
        return self.values.get(key, str(default)).strip().lower() == "true"

    def number(self, key: str, default: int) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        try:
            return int(value)
        except ValueError:
            raise ConfigurationError(f"{key} is a whole number, got {value!r}") from None

    # -- by name --

    def inference(self) -> Address:
        return Address.parse(self.values.get("inference_address", "http://127.0.0.1:8080"), 80)

    def management(self) -> Address:
        return Address.parse(self.values.get("management_address", "http://127.0.0.1:8081"), 80)

    def metrics_address(self) -> Address:
        return Address.parse(self.values.get("metrics_address", "http://127.0.0.1:8082"), 80)

    def grpc_inference(self) -> Address:
        return Address(self.values.get("grpc_inference_address", "127.0.0.1"), self.number("grpc_inference_port", 7070))

    def grpc_management(self) -> Address:
        return Address(
            self.values.get("grpc_management_address", "127.0.0.1"), self.number("grpc_management_port", 7071)
        )

    @property
    def model_store(self) -> str | None:
        return self.values.get("model_store")

    @property
    def workflow_store(self) -> str | None:
        return self.values.get("workflow_store") or self.model_store

    @property
    def allowed_urls(self) -> list[str]:
        return [u.strip() for u in self.values.get("allowed_urls", _DEFAULT_URLS).split(",") if u.strip()]

    @property
    def sequence_keys(self) -> tuple[str, str, str]:
        names = ("ts_header_key_sequence_id", "ts_header_key_sequence_start", "ts_header_key_sequence_end")
        first, second, third = (self.values.get(n, d) for n, d in zip(names, SEQUENCE_KEYS))
        return first, second, third

    @property
    def number_of_gpu(self) -> int:
        return self.number("number_of_gpu", 0)

    @property
    def default_workers(self) -> int:
        """Number of workers of a model loaded at the start: as set, or one for each GPU, or one for each core."""
        return self.number("default_workers_per_model", 0) or self.number_of_gpu or os.cpu_count() or 1

    @property
    def max_workers(self) -> int:
        """The largest number of workers a model may have."""
        return self.number("max_workers_per_model", max(64, 4 * (os.cpu_count() or 1)))

    @property
    def log_folder(self) -> Path:
        return Path(os.environ.get("LOG_LOCATION", "logs"))

    @property
    def metrics_folder(self) -> Path:
        return Path(os.environ.get("METRICS_LOCATION", "logs"))

    def cors_headers(self) -> dict[str, str]:
        """Return the CORS headers, by which browsers allow other sites' pages to send requests to this server."""
        names = ("origin", "methods", "headers")
        return {f"access-control-allow-{n}": v for n in names if (v := self.values.get(f"cors_allowed_{n}"))}

    def worker_environment(self) -> dict[str, str]:
        """Return the environment of workers: the server's, without what blacklist_env_vars matches."""
        hidden = re.compile(self.values.get("blacklist_env_vars") or r"\Z.")
        kept = {k: v for k, v in os.environ.items() if not hidden.fullmatch(k)}
        kept.pop("TS_KEYSTORE_PASS", None)  # the server's own secret
        kept["TS_DECODE_INPUT_REQUEST"] = str(self.flag("decode_input_request", True)).lower()
        kept.update(
            zip(("TS_REQUEST_SEQUENCE_ID", "TS_REQUEST_SEQUENCE_START", "TS_REQUEST_SEQUENCE_END"), self.sequence_keys)
        )
        return kept

    def of_model(self, name: str, version: str) -> dict[str, Any]:
        """Return the settings that `models={...}` of config.properties has for a version of a model."""
        text = self.values.get("models")
        if not text:
            return {}
        try:
            return bounded_json.loads(text).get(name, {}).get(version, {})
        except (ValueError, AttributeError) as e:
            raise ConfigurationError(f"`models` of config.properties is no JSON object: {e}") from e

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context of the listeners."""
        return server_context(*self.certificates())

    def certificates(self) -> tuple[bytes, bytes]:
        """Return the private key and the certificate, in PEM form, from private_key_file and certificate_file, or a PKCS#12 keystore."""
        if self.values.get("keystore"):
            return _from_keystore(self.values["keystore"], self.values.get("keystore_pass", "changeit"))
        return from_files(self.values.get("private_key_file"), self.values.get("certificate_file"))


def host_name() -> str:
    return socket.gethostname()


# -- one model -----------------------------------------------------------------------------------------------------------------

_MODEL_KEYS = {
    "minWorkers": "min_workers", "maxWorkers": "max_workers", "batchSize": "batch_size", "maxBatchDelay": "max_batch_delay",
    "responseTimeout": "response_timeout", "startupTimeout": "startup_timeout", "maxRetryTimeoutInSec": "max_retry_timeout",
    "clientTimeoutInMills": "client_timeout_ms", "jobQueueSize": "job_queue_size", "parallelLevel": "parallel_level",
    "sequenceMaxIdleMSec": "sequence_max_idle_ms", "sequenceTimeoutMSec": "sequence_timeout_ms",
    "maxSequenceJobQueueSize": "max_sequence_job_queue_size", "maxNumSequence": "max_num_sequence",
}  # fmt: skip
_MODEL_FLAGS = {
    "useJobTicket": "use_job_ticket", "continuousBatching": "continuous_batching",
    "sequenceBatching": "sequence_batching", "asyncCommunication": "async_communication", "useVenv": "use_venv",
}  # fmt: skip
_DEVICES = ("cpu", "gpu", "neuron")


@dataclass
class ModelSettings:
    """The settings of one model. Numbers left at 0 in model-config.yaml are taken from the request or the server."""

    min_workers: int = 0
    max_workers: int = 0
    batch_size: int = 1
    max_batch_delay: int = 100
    response_timeout: int = 120
    startup_timeout: int = 120
    max_retry_timeout: int = 300
    client_timeout_ms: int = 0
    job_queue_size: int = 100
    parallel_level: int = 0
    parallel_type: str = ""  # tp, pp, pptp: `parallel_level` processes hold one copy of the model together
    device_type: str = "cpu"
    device_ids: list[int] = field(default_factory=list)
    use_job_ticket: bool = False
    continuous_batching: bool = False
    sequence_batching: bool = False
    async_communication: bool = False
    use_venv: bool = False
    sequence_max_idle_ms: int = 0
    sequence_timeout_ms: int = 0
    max_sequence_job_queue_size: int = 1
    max_num_sequence: int = 1

    @classmethod
    def of(cls, archive: ModelArchive, server: Settings, asked: Mapping[str, int | None]) -> ModelSettings:
        """Combine settings: for batching the request's override the model's; otherwise the model's override the server's."""
        own = cls._from_yaml(archive.config())
        listed = server.of_model(archive.name, archive.version)
        result = cls(**own)
        for key, attribute in _MODEL_KEYS.items():
            if attribute not in own and isinstance(listed.get(key), int):
                setattr(result, attribute, listed[key])
                own[attribute] = listed[key]
        for name, value in asked.items():
            explicit_first = name in ("batch_size", "max_batch_delay")
            if value is not None and (explicit_first or name not in own):
                setattr(result, name, value)
        for name in ("response_timeout", "startup_timeout"):
            if name not in own and asked.get(name) is None:
                setattr(result, name, server.number(f"default_{name}", 120))
        if "job_queue_size" not in own:
            result.job_queue_size = server.number("job_queue_size", 100)
        for attribute in _MODEL_KEYS.values():
            if abs(getattr(result, attribute)) > MOST:
                raise InvalidModelException(f"{attribute} of a model is at most {MOST}.")
        result._place(own, server)
        return result

    @staticmethod
    def _from_yaml(config: Mapping[str, Any]) -> dict[str, Any]:
        own: dict[str, Any] = {}
        for key, attribute in _MODEL_KEYS.items():
            value = config.get(key)
            if value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise InvalidModelException(f"{key} of the model's settings is a whole number, got {value!r}")
            if value > 0 or key == "maxBatchDelay":
                own[attribute] = value
        for key, attribute in _MODEL_FLAGS.items():
            if isinstance(config.get(key), bool):
                own[attribute] = config[key]
        if config.get("parallelType"):
            own["parallel_type"] = str(config["parallelType"])
            started = config.get("torchrun")
            if isinstance(started, dict) and isinstance(started.get("nproc-per-node"), int):
                own["parallel_level"] = max(started["nproc-per-node"], 1)
        if str(config.get("deviceType", "")).lower() in _DEVICES:
            own["device_type"] = str(config["deviceType"]).lower()
        if isinstance(config.get("deviceIds"), list):
            own["device_ids"] = [int(i) for i in config["deviceIds"]]
        if own.get("min_workers", 0) > own.get("max_workers", own.get("min_workers", 0)):
            own["max_workers"] = own["min_workers"]
        return own

    def _place(self, own: Mapping[str, Any], server: Settings) -> None:
        gpus = server.number_of_gpu
        if not gpus:
            self.device_type = "cpu"
        elif "device_type" not in own:
            self.device_type = "gpu"
        if any(not 0 <= i < gpus for i in self.device_ids):
            self.device_ids = []
        self.max_num_sequence = max(self.max_num_sequence, 1)
        if self.sequence_batching and self.sequence_max_idle_ms <= 0:
            self.sequence_max_idle_ms = 60_000
