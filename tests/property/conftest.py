"""How many random cases are tried: a few in every run, many with `pytest tests/property --hypothesis-profile=thorough`."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
_COMMON["phases"] = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile("quick", max_examples=25, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=400, **_COMMON)
settings.load_profile("quick")
