"""PyTorch's operators by schema: `torch.ops.aten`, the choice of an overload, and the function that runs for each."""

from .overloads import OpOverload, OpOverloadPacket, aten, recording, resolver_module

__all__ = ["OpOverload", "OpOverloadPacket", "aten", "recording", "resolver_module"]
