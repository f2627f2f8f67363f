"""Namespaces that have all of PyTorch's public names keep them, and public functions describe themselves."""

from __future__ import annotations

import warnings

import pytest
from answers import judge

import flambeau

judge("torch")
from .surface import missing_names, undocumented  # noqa: E402

COMPLETE = """
nn.init nn.parameter nn.utils nn.utils.rnn nn.utils.parametrize nn.utils.parametrizations nn.utils.prune nn.utils.stateless
nn.utils.fusion nn.grad nn.modules.module nn.modules.loss optim optim.lr_scheduler optim.swa_utils optim.optimizer
autograd.functional autograd.anomaly_mode utils.data.dataset utils.data.dataloader utils.data.sampler utils.dlpack utils.weak
special signal signal.windows distributions distributions.constraints distributions.transforms distributions.kl hub futures
functional storage types cpu version backends.cpu backends.openmp backends.mha backends.kleidiai backends.cusparselt
nn.attention.bias torch_version multiprocessing
"""


@pytest.mark.parametrize("path", COMPLETE.split())
def test_nothing_is_missing(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not missing_names(flambeau, path)


@pytest.mark.parametrize(
    "path", ["torch", "Tensor", "nn", "nn.functional", "nn.init", "optim", "linalg", "testing", "library", "masked"]
)
def test_public_functions_have_a_docstring(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not undocumented(flambeau, path)
