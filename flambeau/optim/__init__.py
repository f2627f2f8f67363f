"""Optimizers and learning-rate schedules."""

from . import lr_scheduler, swa_utils
from .adafactor import Adafactor
from .adagrad import ASGD, Adadelta, Adagrad, RMSprop, Rprop
from .adam import Adam, Adamax, AdamW, NAdam, RAdam
from .lbfgs import LBFGS
from .muon import Muon
from .optimizer import Optimizer
from .sgd import SGD
from .sparse_adam import SparseAdam
from .stateless import swap_in_optimizer_params_and_state

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "Optimizer",
    "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler",
    "swa_utils", "swap_in_optimizer_params_and_state",
]  # fmt: skip
