"""`torch.utils.serialization.config`: config.load.mmap, config.save.compute_crc32 and the like are plain attributes to set."""

from __future__ import annotations

from ...serialization.options import load_options as load
from ...serialization.options import save_options as save

__all__ = ["load", "save"]
