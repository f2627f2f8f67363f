"""Models of videos and of optical flow: torchvision's numbers from its initial weights, forwards and backwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.vision import models

from .oracle import torchvision

ALL = [*models.list_models(models.video), *models.list_models(models.optical_flow)]


def _mvit(models: Any, version: int) -> Any:
    mvit = models.video.mvit
    pooled = [3, 3, 3]
    settings = [
        mvit.MSBlockConfig(
            1, 8, 16, pooled if version == 2 else [], pooled, [1, 1, 1] if version == 2 else [], [1, 4, 4]
        ),
        mvit.MSBlockConfig(2, 16, 16, pooled, pooled, [1, 2, 2], [1, 2, 2]),
    ]
    new = version == 2
    return mvit.MViT((32, 40), 4, settings, new, False, new, new, num_classes=5, stochastic_depth_prob=0.5)


def _swin(models: Any) -> Any:
    return models.video.SwinTransformer3d([2, 4, 4], 8, [2, 2], [2, 4], [4, 3, 3], num_classes=5)


# name: what makes the model from torchvision's or our `models`, and the shapes of what it is given
SMALL: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "r3d_18": (lambda m: m.video.r3d_18(num_classes=5), [(2, 3, 4, 16, 16)]),
    "mc3_18": (lambda m: m.video.mc3_18(num_classes=5), [(2, 3, 4, 16, 16)]),
    "r2plus1d_18": (lambda m: m.video.r2plus1d_18(num_classes=5), [(2, 3, 4, 16, 16)]),
    "mvit, positions": (lambda m: _mvit(m, 1), [(2, 3, 4, 32, 40)]),
    "mvit, relative positions": (lambda m: _mvit(m, 2), [(2, 3, 4, 32, 40)]),
    "swin, padded and shifted": (_swin, [(2, 3, 11, 30, 27)]),
    "swin, one window": (_swin, [(2, 3, 4, 8, 12)]),
    "raft_small": (lambda m: m.optical_flow.raft_small(), [(1, 3, 128, 136)] * 2),
}


@pytest.mark.parametrize("name", ALL)
def test_published_number_of_parameters(name: str) -> None:
    with flambeau.device("meta"):
        model = models.get_model(name)
    counts = {weights.meta["num_params"] for weights in models.get_model_weights(name)}
    assert {sum(p.numel() for p in model.parameters())} == counts


def test_names_of_classes() -> None:
    assert len(set(models.video.R3D_18_Weights.DEFAULT.meta["categories"])) == 400
    assert "categories" not in models.optical_flow.Raft_Large_Weights.DEFAULT.meta


def test_sizes_that_do_not_fit_are_refused() -> None:
    raft = models.optical_flow.raft_small()
    with pytest.raises(ValueError, match="divisible by 8"):
        raft(flambeau.zeros(1, 3, 128, 130), flambeau.zeros(1, 3, 128, 130))
    with pytest.raises(ValueError, match="too small"):
        raft(flambeau.zeros(1, 3, 64, 64), flambeau.zeros(1, 3, 64, 64))
    with pytest.raises(ValueError, match="shape"):
        _mvit(models, 1)(flambeau.zeros(3, 32, 40))


@pytest.mark.parametrize("name", SMALL)
def test_numbers_are_torchvisions(name: str) -> None:
    vision, torch = torchvision(), judge("torch")
    make, shapes = SMALL[name]
    width, close = ("float", 1e-4) if name == "raft_small" else ("double", 1e-7)  # RAFT's coordinates are float32
    inputs = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
    found = []
    for library, known in ((flambeau, models), (torch, vision.models)):
        library.manual_seed(0)
        model = getattr(make(known), width)().train()
        library.manual_seed(1)
        out = model(*(getattr(library.from_numpy(x), width)() for x in inputs))
        out = out[-1] if isinstance(out, list) else out
        out.pow(2).mean().backward()
        grads = [0.0 if p.grad is None else float(p.grad.abs().sum()) for p in model.parameters()]
        found.append((out.detach().numpy(), grads))
    (ours, our_grads), (theirs, their_grads) = found
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=close * float(np.abs(theirs).max()))
    np.testing.assert_allclose(our_grads, their_grads, rtol=100 * close, atol=10 * close * max(their_grads))


@pytest.mark.parametrize("lead", [(5,), (2, 5)])
def test_prepared_videos_are_torchvisions(lead: tuple[int, ...]) -> None:
    vision, torch = torchvision(), judge("torch")
    video = np.random.default_rng(0).random((*lead, 3, 50, 70)).astype(np.float32)
    ours, theirs = (
        models.video.R3D_18_Weights.DEFAULT.transforms(),
        vision.models.video.R3D_18_Weights.DEFAULT.transforms(),
    )
    assert repr(ours) == repr(theirs)
    np.testing.assert_allclose(
        ours(flambeau.from_numpy(video)).numpy(), theirs(torch.from_numpy(video)).numpy(), atol=1e-5
    )
    ours, theirs = (m.optical_flow.Raft_Small_Weights.DEFAULT.transforms() for m in (models, vision.models))
    for a, b in zip(
        ours(flambeau.from_numpy(video), flambeau.from_numpy(video)),
        theirs(torch.from_numpy(video), torch.from_numpy(video)),
    ):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_the_video_swin_transformer_compiles_in_torchscript() -> None:
    model = models.video.swin_transformer.SwinTransformer3d([2, 4, 4], 8, [2], [2], [4, 4, 4], num_classes=3).eval()
    x = flambeau.rand(1, 3, 9, 20, 24)
    assert flambeau.jit.script(model)(x).equal(model(x))
