"""`torch.utils._pytree`: nested containers as trees. See `core.pytree`, where it is."""

from ..core import pytree as _pytree

globals().update({name: value for name, value in vars(_pytree).items() if not name.startswith("__")})
