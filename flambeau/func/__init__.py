"""Function transforms: derivatives, maps over batches, modules called with other parameters.

>>> from flambeau.func import grad, vmap
>>> vmap(grad(flambeau.sin))(flambeau.zeros(3))
tensor([1., 1., 1.])
"""

from . import rules as rules
from .derivatives import functionalize, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .mapping import vmap
from .modules import functional_call, replace_all_batch_norm_modules_, stack_module_state

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip
