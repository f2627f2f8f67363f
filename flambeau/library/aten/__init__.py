"""PyTorch's operators by schema: `torch.ops.aten`, which overload a call means, what runs for each."""

from .overloads import OpOverload, OpOverloadPacket, aten, recording, resolver_module

__all__ = ["OpOverload", "OpOverloadPacket", "aten", "recording", "resolver_module"]
