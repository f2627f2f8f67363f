"""Running one expression in both libraries on the same pictures, and comparing what comes out."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau

from .oracle import torchvision


def libraries() -> tuple[Any, Any]:
    """(ours, theirs): torch, transforms, functional, v2 and tv_tensors of each."""
    theirs = torchvision()
    torch = judge("torch")
    transforms = judge("torchvision.transforms")
    tv_tensors = judge("torchvision.tv_tensors")
    functional = judge("torchvision.transforms.functional")
    v2 = judge("torchvision.transforms.v2")

    from flambeau.vision import transforms as our_transforms
    from flambeau.vision import tv_tensors as our_tensors

    assert theirs is not None
    ours = SimpleNamespace(torch=flambeau, T=our_transforms, F=our_transforms.functional, V=our_transforms.v2, VF=our_transforms.v2.functional, TV=our_tensors)  # fmt: skip
    return ours, SimpleNamespace(torch=torch, T=transforms, F=functional, V=v2, VF=v2.functional, TV=tv_tensors)


def pixels(shape: tuple[int, ...], dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    """Smooth colours with noise: no two pixels alike, no flat areas."""
    rng = np.random.RandomState(seed)
    values = rng.rand(*shape)
    return (values * 256).astype(np.uint8) if dtype == "uint8" else values.astype(dtype)


def picture(kind: str, library: Any, size: tuple[int, int] = (23, 29)) -> Any:
    """The same test picture for either library: pil-RGB, pil-L, uint8, float32, gray-uint8, batch-uint8, image, ..."""
    import PIL.Image

    height, width = size
    if kind.startswith("pil-"):
        # What is recorded of PIL's images is what the Pillow of then did: resizing and posterizing have changed since 12.
        if importlib.util.find_spec("torch") is None and int(PIL.__version__.partition(".")[0]) < 13:
            pytest.skip("PyTorch is not installed, and its answers about PIL's images were recorded with Pillow 13")
        mode = kind[4:]
        shape = {"L": (height, width), "RGBA": (height, width, 4), "LA": (height, width, 2)}.get(
            mode, (height, width, 3)
        )
        array = pixels(shape)
        if mode in ("1", "P", "I", "F", "I;16", "CMYK", "HSV"):
            return (
                PIL.Image.fromarray(array).convert(mode)
                if mode != "I;16"
                else PIL.Image.fromarray(array[:, :, 0].astype(np.uint16))
            )
        return PIL.Image.fromarray(array)
    channels = 1 if "gray" in kind else 3
    lead = (2,) if "batch" in kind else ((2, 3) if "video" in kind else ())
    dtype = "float32" if "float" in kind else "float64" if "double" in kind else "uint8"
    tensor = library.torch.from_numpy(pixels((*lead, channels, height, width), dtype))
    if "image" in kind:
        return library.TV.Image(tensor)
    if "video" in kind:
        return library.TV.Video(tensor)
    if "mask" in kind:
        return library.TV.Mask(tensor[0] // 64)
    return tensor


def seed(library: Any, value: int) -> None:
    library.torch.manual_seed(value)
    random.seed(value)
    np.random.seed(value)


def outcome(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call(), None
    except Exception as problem:
        return None, problem


def is_pil(value: Any) -> bool:
    import PIL.Image

    return isinstance(value, PIL.Image.Image)


def assert_same(
    got: Any, want: Any, off_by: int = 0, rtol: float = 1e-5, atol: float = 2e-6, share: float = 1.0, path: str = ""
) -> None:
    """Same types, shapes, dtypes and numbers. `off_by`: how far bytes may be apart, in at most `share` of the places."""
    assert type(got).__name__ == want.__class__.__name__, f"{path}: {type(got)} where {type(want)} was expected"
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), path
        for i, (g, w) in enumerate(zip(got, want)):
            assert_same(g, w, off_by, rtol, atol, share, f"{path}[{i}]")
        return
    if isinstance(want, dict):
        assert list(got) == list(want), path
        for key in want:
            assert_same(got[key], want[key], off_by, rtol, atol, share, f"{path}[{key!r}]")
        return
    if is_pil(want):
        assert (got.mode, got.size) == (want.mode, want.size), path
        assert got.getpalette() == want.getpalette() if want.mode == "P" else True
        _assert_integers(np.asarray(got), np.asarray(want), off_by, share, path)
        return
    if not hasattr(want, "numpy"):
        assert got == want, f"{path}: {got!r} where {want!r} was expected"
        return
    assert str(got.dtype) == str(want.dtype), f"{path}: {got.dtype} where {want.dtype} was expected"
    assert tuple(got.shape) == tuple(want.shape), f"{path}: {got.shape} where {want.shape} was expected"
    for name in ("format", "canvas_size", "clamping_mode"):
        if hasattr(want, name):
            assert str(getattr(got, name)) == str(getattr(want, name)), f"{path}: {name}"
    ours, theirs = got.detach().numpy(), want.detach().numpy()
    if ours.dtype.kind in "iub":
        _assert_integers(ours, theirs, off_by, share, path)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol, err_msg=path)


def _assert_integers(got: np.ndarray, want: np.ndarray, off_by: int, share: float, path: str) -> None:
    if off_by == 0:
        np.testing.assert_array_equal(got, want, err_msg=path)
        return
    apart = np.abs(got.astype(np.int64) - want.astype(np.int64))
    assert apart.max(initial=0) <= off_by, f"{path}: {apart.max()} apart"
    assert (apart > 0).mean() <= share, f"{path}: {(apart > 0).mean():.1%} of the values differ"


def check(expression: Callable[[Any], Any], seed_value: int = 0, **tolerance: Any) -> None:
    """`expression(library)` gives the same in both libraries, or raises the same type of exception."""
    ours, theirs = libraries()
    seed(theirs, seed_value)
    want, expected = outcome(lambda: expression(theirs))
    seed(ours, seed_value)
    got, raised = outcome(lambda: expression(ours))
    if expected is not None:
        assert type(raised).__name__ == type(expected).__name__, f"{raised!r} where {expected!r} was expected"
        return
    if raised is not None:
        raise raised
    assert_same(got, want, **tolerance)
    assert float(ours.torch.rand(())) == float(theirs.torch.rand(())), "a different number of random draws"


def weights(model: Any) -> list[Any]:
    return list(model.state_dict().values())


def gradients(model: Any) -> list[Any]:
    return [p.grad for p in model.parameters()]


def numbers_of(library: Any, tree: Any, tensors: Callable[[Any], list[Any]] = lambda leaf: [leaf]) -> Any:
    """Three numbers for each of the `tensors` of a tree's leaves: its shape, the mean by fixed weights and the mean magnitude.

    One question, and as much as a recording keeps of a model."""

    def numbers(t: Any) -> list[float]:
        if t is None:
            return [-1.0, 0.0, 0.0]
        flat = t.detach().double().flatten()
        turned = library.cos(library.arange(flat.numel(), dtype=library.float64))
        shape = sum(size * 1000.0**place for place, size in enumerate(t.shape))
        return [shape, float((flat * turned).mean()), float(flat.abs().mean())]

    return library.utils._pytree.tree_map(lambda leaf: [numbers(t) for t in tensors(leaf)], tree)


def assert_same_numbers(ours: Any, theirs: Any, tolerance: float, least: float = 0.0) -> None:
    """What `numbers_of` gave for both: apart by `tolerance` of a tensor's magnitude, or of `least` times the largest of all of them."""
    assert list(ours) == list(theirs) if isinstance(theirs, dict) else len(ours) == len(theirs)
    a, b = (np.array(flambeau.utils._pytree.tree_leaves(tree)).reshape(-1, 3) for tree in (ours, theirs))
    np.testing.assert_array_equal(a[:, 0], b[:, 0], "shapes")
    assert b[:, 2].max() > 0, "nothing to compare"
    apart = np.abs(a[:, 1] - b[:, 1]) - tolerance * np.maximum(b[:, 2], least * b[:, 2].max())
    assert (apart <= 0).all(), f"tensor {apart.argmax()}: {a[apart.argmax()]} where {b[apart.argmax()]} was expected"
