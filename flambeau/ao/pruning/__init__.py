"""Gradual pruning of weights during training: sparsifiers choose the zeros, schedulers how many.

>>> from flambeau.ao.pruning import CubicSL, WeightNormSparsifier
>>> sparsifier = WeightNormSparsifier(sparsity_level=0.8)
>>> model = flambeau.nn.Sequential(flambeau.nn.Linear(8, 8))
>>> sparsifier.prepare(model, config=[{"tensor_fqn": "0.weight"}])
>>> scheduler = CubicSL(sparsifier, total_t=10, delta_t=1)
>>> for epoch in range(10):  # train for an epoch, then
...     sparsifier.step()
...     scheduler.step()
>>> sparsifier.squash_mask()  # the zeros stay, the masks go
"""

from .scheduler.base_scheduler import BaseScheduler
from .scheduler.cubic_scheduler import CubicSL
from .scheduler.lambda_scheduler import LambdaSL
from .sparsifier.base_sparsifier import BaseSparsifier
from .sparsifier.nearly_diagonal_sparsifier import NearlyDiagonalSparsifier
from .sparsifier.utils import FakeSparsity, fqn_to_module, get_arg_info_from_tensor_fqn, module_to_fqn
from .sparsifier.weight_norm_sparsifier import WeightNormSparsifier

__all__ = [
    "BaseScheduler", "BaseSparsifier", "CubicSL", "FakeSparsity", "LambdaSL", "NearlyDiagonalSparsifier", "WeightNormSparsifier",
    "fqn_to_module", "get_arg_info_from_tensor_fqn", "module_to_fqn",
]  # fmt: skip
