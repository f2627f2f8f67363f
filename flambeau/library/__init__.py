"""Custom operators: `custom_op` makes one of a Python function, with autograd, called as `flambeau.ops.<namespace>.<name>`.

>>> import flambeau, numpy as np
>>> @custom_op("shop::sine", mutates_args=())
... def sine(x: flambeau.Tensor) -> flambeau.Tensor:
...     return flambeau.from_numpy(np.sin(x.numpy(force=True)))
>>> sine.register_autograd(lambda ctx, g: g * ctx.x.cos(), setup_context=lambda ctx, inputs, output: setattr(ctx, "x", *inputs))
>>> flambeau.ops.shop.sine(flambeau.zeros(2))
tensor([0., 0.])
"""

from ..core.absent import raising, returning
from ..ops.machinery.inferred_schema import infer_schema
from .checking import opcheck
from .custom_op import CustomOpDef, custom_op, triton_op
from .registration import (
    Library,
    _scoped_library,  # noqa: F401  tests of other people use it
    define,
    fallthrough_kernel,
    impl,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)

impl_abstract = register_fake
(get_ctx,) = returning("get_ctx", lambda: None, "shapes are found by running on tensors without memory.").values()
get_kernel, wrap_triton = raising(
    "get_kernel wrap_triton", NotImplementedError, "library.{}(): kernels are called through operators"
).values()

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "impl", "impl_abstract", "infer_schema", "opcheck",
    "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch",
    "register_vmap", "triton_op",
]  # fmt: skip
