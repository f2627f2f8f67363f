"""Names of TorchServe's service module that handlers use."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger(__name__)
PREDICTION_METRIC = "PredictionTime"


def emit_metrics(metrics: Iterable[Any]) -> None:
    """Write metrics to the model's log, from where the server reads them."""
    for metric in metrics or ():
        logger.info("[METRICS]%s", metric)
