"""Validation of settings when the server starts: invalid ones are refused by name, instead of failing later."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from .errors import ConfigurationError

if TYPE_CHECKING:
    from .settings import Address, Settings

MOST = 2**31 - 1
_NUMBERS = {  # the least and the most
    "job_queue_size": (1, MOST), "max_request_size": (1, MOST), "max_response_size": (1, MOST),
    "default_workers_per_model": (0, MOST), "max_workers_per_model": (1, 10_000), "default_response_timeout": (1, MOST),
    "default_startup_timeout": (1, MOST), "unregister_model_timeout": (0, MOST), "number_of_gpu": (0, 1024),
    "number_of_front_ends": (1, 256), "metric_time_interval": (1, MOST), "initial_worker_port": (1, 65535),
    "grpc_inference_port": (-1, 65535), "grpc_management_port": (-1, 65535),
    "grpc_inference_max_connection_age_ms": (1, MOST), "grpc_management_max_connection_age_ms": (1, MOST),
    "grpc_inference_max_connection_age_grace_ms": (1, MOST), "grpc_management_max_connection_age_grace_ms": (1, MOST),
}  # fmt: skip
_FLAGS = (
    "disable_system_metrics", "disable_token_authorization", "decode_input_request", "enable_envvars_config", "enable_grpc_ssl",
    "enable_metrics_api", "enable_model_api", "install_py_dep_per_model", "limit_max_image_pixels", "model_metrics_auto_detect",
    "single_process", "ts_open_inference_protocol", "use_env_allowed_urls",
)  # fmt: skip
_ONE_OF = {
    "metrics_mode": ("log", "prometheus", "legacy"),
    "service_envelope": ("", "body", "json", "kserve", "kservev2"),
}
_ANY_HOST = ("0.0.0.0", "::", "")


def check(settings: Settings) -> None:
    """Raise ConfigurationError for an invalid setting."""
    values = settings.values
    _check_values(settings, values)
    _check_patterns("allowed_urls", settings.allowed_urls)
    _check_patterns("blacklist_env_vars", [values.get("blacklist_env_vars", "")])
    most = settings.max_workers
    if settings.number("default_workers_per_model", 0) > most:
        raise ConfigurationError(f"default_workers_per_model is at most {most} (max_workers_per_model)")
    _check_addresses(settings)


def _check_values(settings: Settings, values: Mapping[str, str]) -> None:
    for key, (least, most) in _NUMBERS.items():
        if key in values and not least <= settings.number(key, least) <= most:
            raise ConfigurationError(f"{key} is a whole number from {least} to {most}, got {values[key]}")
    for key in _FLAGS:
        if values.get(key, "true").strip().lower() not in ("true", "false"):
            raise ConfigurationError(f"{key} is true or false, got {values[key]!r}")
    for key, known in _ONE_OF.items():
        if values.get(key, known[0]) not in known:
            raise ConfigurationError(f"{key} is one of {', '.join(filter(None, known))}, got {values[key]!r}")
    try:
        minutes = float(values.get("token_expiration_min", "60"))
    except ValueError:
        minutes = -1.0
    if not 0 < minutes < MOST:
        raise ConfigurationError(f"token_expiration_min is a number above 0, got {values['token_expiration_min']!r}")


def _check_patterns(key: str, patterns: Iterable[str]) -> None:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as e:
            raise ConfigurationError(f"{key}: {pattern!r} is no pattern: {e}") from e


def _check_addresses(settings: Settings) -> None:
    """Raise ConfigurationError if two services use the same port; only REST services may share a complete address."""
    services: list[tuple[str, Address]] = [
        ("inference_address", settings.inference()),
        ("management_address", settings.management()),
        ("metrics_address", settings.metrics_address()),
    ]
    if not settings.flag("enable_metrics_api", True):
        services.pop()
    inference, management = settings.grpc_inference(), settings.grpc_management()
    if inference.port >= 0:
        if management.port < 0:
            raise ConfigurationError(
                "grpc_management_port is -1, which switches gRPC off, but grpc_inference_port is not"
            )
        services += [("grpc_inference_port", inference), ("grpc_management_port", management)]
    for i, (first, one) in enumerate(services):
        for second, other in services[:i]:
            may_share = one == other and not first.startswith("grpc") and not second.startswith("grpc")
            if _addresses_overlap(one, other) and not may_share:
                raise ConfigurationError(f"{second} and {first} are both at port {one.port}: give each its own")


def _addresses_overlap(one: Address, other: Address) -> bool:
    if one.path or other.path or not one.port or one.port != other.port:
        return False
    return one.host == other.host or one.host in _ANY_HOST or other.host in _ANY_HOST
