"""The page at `/` of the management address: models, workers, queues, latencies, and a form to try a model."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from .models import resident_bytes
from .pool import LOADED
from .registry import Registry
from .settings import Address

# The page is one file: nothing is fetched from elsewhere, and nothing else may run in it.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self';"
    " img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@lru_cache(maxsize=1)
def html() -> bytes:
    return Path(__file__).with_name("page.html").read_bytes()


def stats(registry: Registry, started: float, inference: Address) -> dict[str, Any]:
    """Return the statistics that the page shows."""
    models = []
    for model in registry.all():
        latencies = model.latencies[-512:]
        models.append(
            {
                "name": model.name,
                "version": model.version,
                "default": registry.models[model.name].default == model.version,
                "url": model.archive.url,
                "handler": model.archive.handler,
                "batchSize": model.settings.batch_size,
                "waiting": len(model.batcher),
                "room": model.settings.job_queue_size,
                "latencies": [round(v, 2) for v in latencies],
                "workers": [
                    {
                        "id": w.number,
                        "pid": w.pid,
                        "state": "ready" if w.state == LOADED else w.state.lower(),
                        "busy": len(w.jobs),
                        "memory": resident_bytes(w.pid) if w.pid else 0,
                        "gpu": w.gpu,
                    }
                    for w in model.workers
                ],
            }
        )
    return {"started": started, "inference": str(inference), "models": models}
