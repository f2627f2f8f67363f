"""`torch.cuda.gds`: reading of files directly into a GPU's memory by NVIDIA's cuFile, which is not supported."""

from __future__ import annotations

from ..core.absent import absent_classes as _absent_classes
from ..core.absent import raising as _raising

_UNSUPPORTED = "cuda.gds.{}: files are read through the host's memory"
globals().update(_absent_classes("GdsFile", _UNSUPPORTED, NotImplementedError))
globals().update(_raising("gds_register_buffer gds_deregister_buffer", NotImplementedError, _UNSUPPORTED))
