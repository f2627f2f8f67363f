"""How many random cases are tried: a few in every run, many with `pytest tests/property --hypothesis-profile=thorough`."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

_COMMON = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
_COMMON["phases"] = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile("quick", max_examples=25, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=400, **_COMMON)
settings.load_profile("quick")

# Hypothesis draws constants of all modules that are imported, too: what is tried would hang on which other tests were collected, and reading
# 1,500 modules takes a fifth of the time of collecting them.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants
