"""Models that can be quantized: built, fused, prepared and converted as torchvision's, and with its files the same results, bit for bit."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
from answers import judge

import flambeau
from flambeau.vision.models import get_model, get_model_weights, get_weight, list_models, quantization

from .oracle import torchvision

pytestmark = pytest.mark.filterwarnings("ignore")
WITHOUT_EXTRAS = {"init_weights": False, "aux_logits": False}


@pytest.fixture(scope="module")
def theirs() -> Any:
    torchvision()
    return judge("torchvision.models.quantization")


def _converted(library: Any, model: Any, data: list[np.ndarray]) -> Any:
    flow = library.ao.quantization
    model.eval().fuse_model()
    model.qconfig = flow.QConfig(activation=flow.default_observer, weight=flow.default_per_channel_weight_observer)
    flow.prepare(model, inplace=True)
    with library.no_grad():
        for x in data:
            model(library.tensor(x))
    return flow.convert(model, inplace=True)


@pytest.mark.parametrize(
    ("name", "size", "options"),
    [
        ("resnet18", 32, {}),
        ("mobilenet_v2", 32, {}),
        ("shufflenet_v2_x0_5", 64, {}),
        ("googlenet", 48, WITHOUT_EXTRAS),
        ("inception_v3", 75, WITHOUT_EXTRAS),
    ],
)
def test_a_converted_model_with_their_file(theirs: Any, name: str, size: int, options: dict) -> None:
    torch = judge("torch")
    torch.manual_seed(0)
    theirs_made = getattr(theirs, name)(num_classes=10, **options)
    ours_made = getattr(quantization, name)(num_classes=10, **options)
    assert repr(theirs_made) == repr(ours_made)
    x = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    with torch.no_grad():
        theirs_made.train()(torch.tensor(x))  # norms get an average
    expected = _converted(torch, theirs_made, [x])
    found = _converted(flambeau, ours_made, [])
    file = io.BytesIO()
    torch.save(expected.state_dict(), file)
    file.seek(0)
    found.load_state_dict(flambeau.load(file))
    assert list(expected.state_dict()) == list(found.state_dict())
    np.testing.assert_array_equal(expected(torch.tensor(x)).numpy(), found(flambeau.tensor(x)).numpy())


def test_a_traced_model_with_their_file(theirs: Any) -> None:
    torch = judge("torch")
    judge("torch.ao.quantization.quantize_fx")
    torch.manual_seed(0)
    pair = torchvision().models.resnet18(num_classes=10), flambeau.vision.models.resnet18(num_classes=10)
    x = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype(np.float32)
    with torch.no_grad():
        pair[0].train()(torch.tensor(x))
    made = []
    for library, model in zip((torch, flambeau), pair):
        flow, given = library.ao.quantization, library.tensor(x)
        mapping = flow.QConfigMapping().set_global(flow.default_per_channel_qconfig)
        prepared = flow.quantize_fx.prepare_fx(model.eval(), mapping, (given,))
        if library is torch:
            prepared(given)
        made.append(flow.quantize_fx.convert_fx(prepared))
    file = io.BytesIO()
    torch.save(made[0].state_dict(), file)
    file.seek(0)
    made[1].load_state_dict(flambeau.load(file))
    np.testing.assert_array_equal(made[0](torch.tensor(x)).numpy(), made[1](flambeau.tensor(x)).numpy())


def test_the_whole_way_finds_their_scales(theirs: Any) -> None:
    """Prepared and observed here, from the same weights: scales as far as float32 agrees, and so the results."""
    torch = judge("torch")
    torch.manual_seed(0)
    pair = [made.shufflenet_v2_x0_5(num_classes=10) for made in (theirs, quantization)]
    pair[1].load_state_dict({k: flambeau.tensor(v.numpy()) for k, v in pair[0].state_dict().items()})
    x = np.random.default_rng(0).standard_normal((2, 3, 64, 64)).astype(np.float32)
    made = [_converted(library, model, [x]) for library, model in zip((torch, flambeau), pair)]
    scales = [[float(m.scale) for m in model.modules() if hasattr(m, "scale")] for model in made]
    assert len(scales[0]) > 50
    np.testing.assert_allclose(scales[0], scales[1], rtol=1e-4)
    results = [model(library.tensor(x)).numpy() for library, model in zip((torch, flambeau), made)]
    assert np.abs(results[0] - results[1]).max() < 0.05 * np.abs(results[0]).max()


def test_trained_in_8_bits() -> None:
    """MobileNet V3 is converted from a model that is prepared for training."""
    model = quantization.mobilenet_v3_large(quantize=True, num_classes=3, width_mult=0.25)
    assert not model.training and "QuantizedConvReLU2d" in repr(model) and "QuantizedHardswish" in repr(model)
    assert model(flambeau.rand(1, 3, 32, 32)).shape == (1, 3)


def test_registry(theirs: Any) -> None:
    models = torchvision().models
    assert list_models(quantization) == models.list_models(module=theirs)
    assert get_model_weights("quantized_resnet50") is quantization.ResNet50_QuantizedWeights
    for name in (n for n in dir(theirs) if n.endswith("QuantizedWeights")):
        for member in getattr(theirs, name):
            mine = get_weight(f"{name}.{member.name}")
            assert mine.url == member.url and str(mine.meta["unquantized"]) == str(member.meta["unquantized"])
            assert mine.meta["backend"] == member.meta["backend"]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        get_model("quantized_shufflenet_v2_x0_5", pretrained=False)
    assert any("'pretrained' is deprecated" in str(w.message) for w in said)
