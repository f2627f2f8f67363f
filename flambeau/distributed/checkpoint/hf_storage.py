"""`torch.distributed.checkpoint.hf_storage`: sharded checkpoints in safetensors files, which Flambeau does not have yet."""

from __future__ import annotations

from ...core.absent import absent_class as _absent_class

_MESSAGE = (
    "torch.distributed.checkpoint.hf_storage.{} is not in Flambeau yet: use torch.save and torch.load (docs/files.md)"
)
HuggingFaceStorageReader = _absent_class("HuggingFaceStorageReader", _MESSAGE.format("HuggingFaceStorageReader"))
HuggingFaceStorageWriter = _absent_class("HuggingFaceStorageWriter", _MESSAGE.format("HuggingFaceStorageWriter"))
