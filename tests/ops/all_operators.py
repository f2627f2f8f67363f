"""All operators of the library, those of rooms that are imported late, too, in an order of their own: whatever other tests have imported."""

from __future__ import annotations

import flambeau
import flambeau.distributed.records  # noqa: F401  declares collectives
import flambeau.ops.pointwise.unscaling  # noqa: F401  what GradScaler uses
from flambeau.ops import OPS

assert flambeau.ops.quantized.linear_prepack  # declares its room's operators

# Others are users' (torchvision's), there if a test has loaded them.
OWN = sorted((op for op in OPS.values() if "::" not in op.key), key=lambda op: op.key)
