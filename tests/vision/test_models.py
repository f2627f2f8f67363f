"""Models: torchvision's names, shapes, initial weights and numbers, for every builder or family."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import judge, live

import flambeau
from flambeau import nn
from flambeau.vision import models
from flambeau.vision.models._utils import IntermediateLayerGetter
from flambeau.vision.models.detection.backbone_utils import _validate_trainable_layers
from flambeau.vision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from .compare import assert_same_numbers, gradients, numbers_of, weights
from .oracle import torchvision

ALL = models.list_models(exclude="quantized_*")  # tests of these stand with quantization

# Published numbers of parameters (millions), from the papers and the public model tables.
COUNTS = {
    "alexnet": 61.10, "vgg16": 138.36, "vgg19_bn": 143.68, "resnet18": 11.69, "resnet50": 25.56, "resnet152": 60.19,
    "resnext50_32x4d": 25.03, "wide_resnet50_2": 68.88, "densenet121": 7.98, "googlenet": 13.00, "inception_v3": 27.16,
    "mobilenet_v2": 3.50, "mobilenet_v3_large": 5.48, "mobilenet_v3_small": 2.54, "efficientnet_b0": 5.29,
    "efficientnet_b7": 66.35, "efficientnet_v2_s": 21.46, "shufflenet_v2_x1_0": 2.28, "squeezenet1_1": 1.24,
    "convnext_tiny": 28.59, "vit_b_16": 86.57, "vit_h_14": 632.05, "swin_t": 28.29, "swin_v2_t": 28.35, "mnasnet1_0": 4.38,
    "regnet_y_400mf": 4.34, "regnet_x_32gf": 107.81, "maxvit_t": 30.92,
}  # fmt: skip

# One model per family and kind of block: image size, options, whether a training step is compared too (the giant linear
# layers of AlexNet and VGG make it slow, and are covered by the others).
FAMILIES: dict[str, tuple[int, dict[str, Any], bool]] = {
    "alexnet": (64, {}, False),
    "resnet18": (64, {}, True),
    "resnet50": (64, {}, True),
    "resnext50_32x4d": (64, {}, True),
    "densenet121": (64, {"drop_rate": 0.1}, True),
    "densenet169": (64, {"memory_efficient": True}, True),
    "googlenet": (64, {"init_weights": True}, True),
    "inception_v3": (107, {"init_weights": True, "aux_logits": False, "transform_input": True}, True),
    "mobilenet_v2": (64, {}, True),
    "mobilenet_v3_small": (64, {}, True),
    "mobilenet_v3_large": (64, {"reduced_tail": True, "dilated": True}, True),
    "efficientnet_b0": (64, {}, True),
    "shufflenet_v2_x0_5": (64, {}, True),
    "squeezenet1_0": (64, {}, True),
    "squeezenet1_1": (64, {}, True),
    "mnasnet0_5": (64, {}, True),
    "regnet_y_400mf": (64, {}, True),
    "regnet_x_400mf": (64, {}, True),
}


# --- without PyTorch


@pytest.mark.parametrize("name", COUNTS)
def test_published_number_of_parameters(name: str) -> None:
    with flambeau.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model = models.get_model(name)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(COUNTS[name], abs=0.006)


# A digest of what torchvision's builders make: a test below looks at these again where torchvision is.
STRUCTURES = json.loads((Path(__file__).parent / "structures.json").read_text())


def _structure(model: Any) -> str:
    """A digest of a model's names and shapes, of which parameters are trained, and of its printed form."""
    lines = [f"{k} {tuple(v.shape)}" for k, v in model.state_dict().items()]
    lines += [f"{k} {p.requires_grad}" for k, p in model.named_parameters()]
    return hashlib.sha256("\n".join([*lines, repr(model)]).encode()).hexdigest()[:16]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_every_builder_makes_the_recorded_structure(name: str) -> None:
    with flambeau.device("meta"):
        assert _structure(models.get_model(name, **_options(models.get_model_builder(name)))) == STRUCTURES[name]


@pytest.mark.parametrize("name", ["lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"])
def test_segmentation_gives_a_score_for_every_pixel_and_class(name: str) -> None:
    model = models.get_model(name, **{**_options(models.get_model_builder(name)), "num_classes": 2}).eval()
    with flambeau.no_grad():
        assert {k: tuple(v.shape) for k, v in model(flambeau.rand(1, 3, 32, 48)).items()} == {"out": (1, 2, 32, 48)}


@pytest.mark.parametrize(
    ("make", "sizes", "ratios"),
    [
        ("faster_rcnn", ((32,), (64,), (128,), (256,), (512,)), ((0.5, 1.0, 2.0),) * 5),
        (
            "retinanet",
            ((32, 40, 50), (64, 80, 101), (128, 161, 203), (256, 322, 406), (512, 645, 812)),
            ((0.5, 1.0, 2.0),) * 5,
        ),
    ],
)
def test_published_anchors(make: str, sizes: tuple, ratios: tuple) -> None:
    anchors = getattr(models.detection, make)._default_anchorgen()
    assert (anchors.sizes, anchors.aspect_ratios) == (sizes, ratios)


@pytest.mark.parametrize(
    ("is_trained", "asked", "trained"),
    [(True, None, 3), (True, 0, 0), (True, 5, 5), (True, 6, None), (True, -1, None), (False, None, 5), (False, 2, 5)],
)
@pytest.mark.filterwarnings("ignore")
def test_layers_of_a_backbone_that_are_trained(is_trained: bool, asked: int | None, trained: int | None) -> None:
    expected = pytest.raises(ValueError, match=r"range \[0,5\]") if trained is None else contextlib.nullcontext()
    with expected:
        assert _validate_trainable_layers(is_trained, asked, 5, 3) == trained


def test_registry() -> None:
    assert len(ALL) == len(set(ALL)) and sorted(ALL) == ALL
    assert models.list_models(include="resnet*", exclude=["*50", "*1*"]) == ["resnet34"]
    assert models.get_model_builder("ResNet18") is models.resnet18
    assert models.get_model_weights("resnet18") is models.get_model_weights(models.resnet18) is models.ResNet18_Weights
    assert models.get_weight("ResNet50_Weights.DEFAULT") is models.ResNet50_Weights.IMAGENET1K_V2
    with pytest.raises(ValueError, match="Unknown model"):
        models.get_model("resnet17")
    with pytest.raises(ValueError, match="couldn't be found"):
        models.get_weight("Nothing_Weights.DEFAULT")
    with pytest.raises(ValueError, match="already registered"):
        models.register_model("resnet18")(models.resnet34)


def test_options_that_make_a_model_what_it_is_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="groups"):
        models.resnext50_32x4d(groups=2)
    with pytest.raises(TypeError, match="Invalid Weight class"):
        models.resnet18(weights=models.ResNet34_Weights.DEFAULT)
    with pytest.raises(KeyError):
        models.resnet18(weights="BEST")
    with pytest.raises(ValueError, match="num_classes"):
        models.resnet18(weights="DEFAULT", num_classes=10)


def _publish(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]) -> list[str]:
    """As if every published file held this state dict; the addresses asked for."""
    asked: list[str] = []

    def load(url: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        asked.append(url)
        return state

    monkeypatch.setattr("flambeau.hub.load_state_dict_from_url", load)
    return asked


def test_weights_by_member_name_and_old_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    source = models.squeezenet1_1()
    asked = _publish(monkeypatch, source.state_dict())
    weights = models.SqueezeNet1_1_Weights
    for given in (weights.DEFAULT, "DEFAULT", "IMAGENET1K_V1", "SqueezeNet1_1_Weights.IMAGENET1K_V1"):
        loaded = models.squeezenet1_1(weights=given)
        assert flambeau.equal(loaded.features[0].weight, source.features[0].weight)
    with pytest.warns(UserWarning, match="deprecated since 0.13"):
        models.squeezenet1_1(pretrained=True)
    with pytest.warns(UserWarning, match="positional"):
        models.squeezenet1_1(True, False)
    assert asked == [weights.DEFAULT.url] * 6
    with pytest.warns(UserWarning, match="deprecated since 0.13"):
        models.squeezenet1_1(pretrained=False)
    assert len(asked) == 6
    assert len(weights.DEFAULT.meta["categories"]) == 1000


def test_published_files_are_read_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flambeau.hub.get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    source = models.mnasnet0_5()
    flambeau.save(
        source.state_dict(), tmp_path / "checkpoints" / models.MNASNet0_5_Weights.DEFAULT.url.rsplit("/", 1)[1]
    )
    loaded = models.mnasnet0_5(weights="DEFAULT", progress=False)
    for a, b in zip(source.state_dict().values(), loaded.state_dict().values()):
        assert flambeau.equal(a, b)


def test_densenet_reads_files_of_old_releases() -> None:
    model = models.DenseNet(8, (2, 2), 16, num_classes=4)
    old = {}
    for key, value in model.state_dict().items():
        for kind in ("norm", "conv"):
            for number in "12":
                if "denselayer" in key:
                    key = key.replace(f".{kind}{number}.", f".{kind}.{number}.")
        old[key] = value
    fresh = models.DenseNet(8, (2, 2), 16, num_classes=4)
    fresh.load_state_dict(old)
    for a, b in zip(model.state_dict().values(), fresh.state_dict().values()):
        assert flambeau.equal(a, b)


def test_bad_images_are_refused_clearly() -> None:
    vit = models.VisionTransformer(32, 16, 1, 2, 8, 16, num_classes=3)
    with pytest.raises(AssertionError, match="Wrong image height! Expected 32 but got 48!"):
        vit(flambeau.zeros(1, 3, 48, 32))
    with pytest.raises(RuntimeError):
        models.squeezenet1_1()(flambeau.zeros(1, 1, 64, 64))


def test_intermediate_layers() -> None:
    body = IntermediateLayerGetter(models.resnet18(), {"layer1": "fine", "layer3": "coarse"})
    out = body(flambeau.zeros(1, 3, 64, 64))
    assert {name: tuple(x.shape) for name, x in out.items()} == {"fine": (1, 64, 16, 16), "coarse": (1, 256, 4, 4)}
    assert "layer4" not in body
    with pytest.raises(ValueError, match="not present"):
        IntermediateLayerGetter(models.resnet18(), {"layer9": "x"})


@pytest.mark.filterwarnings("ignore:NOTE. The nodes obtained")
def test_feature_extraction_shares_and_restores() -> None:
    model = models.resnet18(num_classes=4)
    extractor = create_feature_extractor(model, {"layer1": "fine", "layer2.0.relu_1": "coarse", "flatten": "flat"})
    kept = {
        k: v for k, v in model.state_dict().items() if not k.startswith("fc.")
    }  # behind the last node that is wanted
    assert list(extractor.state_dict()) == list(kept)
    assert all(flambeau.equal(v, kept[k]) for k, v in extractor.state_dict().items())
    out = extractor(flambeau.rand(2, 3, 32, 32))
    assert {k: tuple(v.shape) for k, v in out.items()} == {
        "fine": (2, 64, 8, 8),
        "coarse": (2, 128, 4, 4),
        "flat": (2, 512),
    }
    assert tuple(model(flambeau.rand(2, 3, 32, 32)).shape) == (2, 4)  # nothing stays behind
    assert model.training
    extractor.eval()
    assert not model.layer1[0].conv1.training
    assert "layer1.0.add" in get_graph_node_names(model)[1]
    with pytest.raises(ValueError, match="not present"):
        create_feature_extractor(model, ["layer9"])
    with pytest.raises(ValueError, match="Either"):
        create_feature_extractor(model)


# --- against torchvision


@pytest.mark.filterwarnings("ignore")
def test_features_are_torchvisions() -> None:
    vision = torchvision()
    torch = judge("torch")

    nodes = ["relu", "layer1.0.relu", "layer1.0.relu_1", "layer2", "layer3.0.conv1", "avgpool"]
    ours, theirs = _pair(models.resnet18, vision.models.resnet18, num_classes=4)
    extraction = judge("torchvision.models.feature_extraction")
    theirs_features = extraction.create_feature_extractor(theirs.eval(), nodes)
    ours_features = create_feature_extractor(ours.eval(), nodes)
    image = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    a, b = ours_features(flambeau.from_numpy(image)), theirs_features(torch.from_numpy(image))
    assert set(a) == set(b)
    _close(a, dict(b), 1e-5)
    assert get_graph_node_names(ours) == extraction.get_graph_node_names(theirs)


@pytest.mark.parametrize(
    "name", ["resnet50", "vit_b_16", "fcn_resnet50", "fasterrcnn_resnet50_fpn", "efficientnet_v2_l"]
)
def test_transforms_of_weights(name: str) -> None:
    vision = torchvision()
    torch = judge("torch")

    ours, theirs = (
        models.get_model_weights(name).DEFAULT.transforms(),
        vision.models.get_model_weights(name).DEFAULT.transforms(),
    )
    assert repr(ours) == repr(theirs)
    image = np.random.default_rng(0).integers(0, 256, (3, 70, 90), dtype=np.uint8)
    a, b = ours(flambeau.from_numpy(image)), theirs(torch.from_numpy(image))
    assert tuple(a.shape) == tuple(b.shape)
    assert float(np.abs(a.numpy() - b.numpy()).max()) <= 0.02  # one step of 255 where resizing rounds the other way


def _skip_if_recorded(large: bool) -> None:
    """Large models take seconds, and show little that small ones of the same parts do not."""
    if large and not live():
        pytest.skip("is compared where PyTorch is")


def _options(builder: Any) -> dict[str, Any]:
    """Arguments that keep a builder from loading anything."""
    names = inspect.signature(inspect.unwrap(builder)).parameters
    return {"weights_backbone": None} if "weights_backbone" in names else {}


@contextlib.contextmanager
def _on_meta(torch: Any, vision: Any) -> Any:
    """torch's meta device; RegNet computes its widths with tensors, which needs a real one."""
    params = vision.models.regnet.BlockParams
    kept = params.__dict__["from_init_params"]

    def on_cpu(cls: Any, **kwargs: Any) -> Any:
        with torch.device("cpu"):
            return kept.__func__(cls, **kwargs)

    params.from_init_params = classmethod(on_cpu)
    try:
        with torch.device("meta"):
            yield
    finally:
        params.from_init_params = kept


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALL)
def test_every_builder_has_torchvisions_modules_and_parameters(name: str) -> None:
    vision = torchvision()
    torch = judge("torch")

    options = _options(models.get_model_builder(name))
    with flambeau.device("meta"):
        ours = models.get_model(name, **options)
    with _on_meta(torch, vision):
        theirs = vision.models.get_model(name, **options)
    assert [(k, tuple(v.shape)) for k, v in ours.state_dict().items()] == [
        (k, tuple(v.shape)) for k, v in theirs.state_dict().items()
    ]
    assert [(k, p.requires_grad) for k, p in ours.named_parameters()] == [
        (k, p.requires_grad) for k, p in theirs.named_parameters()
    ]
    assert repr(ours) == repr(theirs)
    assert _structure(theirs) == STRUCTURES[name]


def test_weights_are_torchvisions() -> None:
    vision = torchvision()
    for name in ALL:
        ours, theirs = models.get_model_weights(name), vision.models.get_model_weights(name)
        assert [w.name for w in ours] == [w.name for w in theirs]
        assert ours.DEFAULT.name == theirs.DEFAULT.name
        for a, b in zip(ours, theirs):
            assert a.url == b.url
            known = {k: v for k, v in b.meta.items() if k != "_docs"}
            assert repr(sorted(a.meta.items())) == repr(sorted(known.items()))  # as text: some figures are nan


def _close(ours: Any, theirs: Any, tolerance: float, least: float = 0.0, tensors: Any = lambda leaf: [leaf]) -> None:
    """Tensors, or those of models, as `numbers_of` sees them."""
    found = numbers_of(flambeau, ours, tensors), numbers_of(judge("torch"), theirs, tensors)
    assert_same_numbers(*found, tolerance, least)


def _total(out: Any) -> Any:
    """One tensor of an output that may be a tuple (auxiliary classifiers)."""
    return sum(part for part in out if part is not None) if isinstance(out, tuple) else out


def _same_training_step(ours: Any, theirs: Any, image: np.ndarray) -> None:
    """In double precision: batch statistics of tiny maps amplify rounding without bound."""
    torch = judge("torch")

    ours.double().train()
    theirs.double().train()
    flambeau.manual_seed(1)
    torch.manual_seed(1)
    x, y = flambeau.from_numpy(image).requires_grad_(), torch.from_numpy(image).requires_grad_()
    a, b = _total(ours(x)), _total(theirs(y))
    _close([a], [b], 1e-9)
    weights = np.arange(b.numel()).reshape(b.shape) / b.numel()
    (a * flambeau.from_numpy(weights)).sum().backward()
    (b * torch.from_numpy(weights)).sum().backward()
    _close([x.grad], [y.grad], 1e-5)
    _close([ours], [theirs], 1e-5, 1e-3, gradients)


def _compare(ours: Any, theirs: Any, size: int, train: bool = True) -> None:
    torch = judge("torch")

    image = np.random.default_rng(0).standard_normal((2, 3, size, size))
    if train:
        _same_training_step(ours, theirs, image)  # also moves the running statistics away from their start
    ours.float().eval()
    theirs.float().eval()
    with flambeau.no_grad(), torch.no_grad():
        a, b = ours(flambeau.from_numpy(image).float()), theirs(torch.from_numpy(image).float())
    _close([a], [b], 1e-5)


def _pair(make_ours: Any, make_theirs: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """Both models from the same seed, with the same initial weights to the bit."""
    torch = judge("torch")

    flambeau.manual_seed(0)
    torch.manual_seed(0)
    ours, theirs = make_ours(*args, **kwargs), make_theirs(*args, **kwargs)
    _close([ours], [theirs], 1e-12, 0.0, weights)
    assert np.array_equal(flambeau.rand(3).numpy(), torch.rand(3).numpy()), "random numbers used differ"
    return ours, theirs


@pytest.mark.parametrize("name", FAMILIES)
def test_same_seed_same_model(name: str) -> None:
    _skip_if_recorded(name in ("alexnet", "resnext50_32x4d"))
    vision = torchvision()
    size, options, train = FAMILIES[name]
    ours, theirs = _pair(
        models.get_model_builder(name), vision.models.get_model_builder(name), num_classes=10, **options
    )
    _compare(ours, theirs, size, train)


def test_vgg() -> None:
    _skip_if_recorded(True)
    vision = torchvision()
    cfg: list[int | str] = [8, "M", 16, 16, "M", 512, "M"]
    pair = []
    for library in (models.vgg, vision.models.vgg):
        pair.append(lambda module=library, **k: module.VGG(module.make_layers(cfg, batch_norm=True), **k))
    ours, theirs = _pair(*pair, num_classes=3)
    for model, layers in ((ours, nn), (theirs, judge("torch").nn)):
        model.avgpool, model.classifier = layers.AdaptiveAvgPool2d(1), layers.Flatten()  # 100 million weights less
    _compare(ours, theirs, 32)


def test_efficientnet_v2_blocks() -> None:
    vision = torchvision()

    def make(module: Any) -> Any:
        rows = [(1, 3, 1, 8, 8, 2), (4, 3, 2, 8, 16, 2)], [(4, 3, 2, 16, 24, 2), (6, 5, 1, 24, 24, 2)]
        setting = [module.FusedMBConvConfig(*row) for row in rows[0]] + [module.MBConvConfig(*row) for row in rows[1]]
        return module.EfficientNet(setting, 0.2, stochastic_depth_prob=0.5, num_classes=5, last_channel=32)

    ours, theirs = _pair(lambda: make(models.efficientnet), lambda: make(vision.models.efficientnet))
    _compare(ours, theirs, 32)


def test_convnext() -> None:
    vision = torchvision()

    def make(module: Any) -> Any:
        setting = [module.CNBlockConfig(8, 16, 2), module.CNBlockConfig(16, None, 2)]
        return module.ConvNeXt(setting, stochastic_depth_prob=0.5, layer_scale=0.5, num_classes=5)

    ours, theirs = _pair(lambda: make(models.convnext), lambda: make(vision.models.convnext))
    _compare(ours, theirs, 32)


@pytest.mark.parametrize("representation_size", [None, 12])
def test_vision_transformer(representation_size: int | None) -> None:
    vision = torchvision()
    torch = judge("torch")

    ours, theirs = _pair(
        models.VisionTransformer, vision.models.VisionTransformer, 32, 8, 2, 4, 16, 32, 0.1, 0.1, 5, representation_size
    )
    torch.nn.init.normal_(theirs.heads.head.weight)  # they start as zeros, which would hide everything
    ours.heads.head.weight.data = flambeau.from_numpy(theirs.heads.head.weight.detach().numpy().copy())
    _compare(ours, theirs, 32)


def test_vision_transformer_for_larger_images() -> None:
    vision = torchvision()
    torch = judge("torch")

    state = {"encoder.pos_embedding": torch.randn(1, 5, 8), "heads.head.weight": torch.ones(2)}
    ours = {key: flambeau.from_numpy(value.numpy()) for key, value in state.items()}
    a = models.vision_transformer.interpolate_embeddings(32, 8, ours, reset_heads=True)
    b = vision.models.vision_transformer.interpolate_embeddings(32, 8, state, reset_heads=True)
    assert list(a) == list(b)
    _close(a, dict(b), 1e-5)


@pytest.mark.parametrize("version", [1, 2])
def test_swin(version: int) -> None:
    vision = torchvision()

    def make(module: Any) -> Any:
        more = (
            {"block": module.SwinTransformerBlockV2, "downsample_layer": module.PatchMergingV2} if version == 2 else {}
        )
        return module.SwinTransformer([4, 4], 12, [2, 2], [2, 3], [3, 3], num_classes=5, **more)

    ours, theirs = _pair(lambda: make(models.swin_transformer), lambda: make(vision.models.swin_transformer))
    _compare(ours, theirs, 52)


def test_maxvit() -> None:
    vision = torchvision()
    options = ((32, 32), 8, 2, [8, 16], [1, 2], 4, 0.3)
    ours, theirs = _pair(models.MaxVit, vision.models.MaxVit, *options, num_classes=5)
    for model in (ours, theirs):  # activations would vanish with such small initial weights
        for p in model.parameters():
            p.data *= 4
    _compare(ours, theirs, 32)
    with pytest.raises(ValueError, match="not divisible by partition size"):
        models.MaxVit((36, 36), *options[1:])


SEGMENTATION = ["fcn_resnet50", "deeplabv3_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"]


@pytest.mark.parametrize("name", SEGMENTATION)
def test_segmentation(name: str) -> None:
    _skip_if_recorded("resnet50" in name)
    vision = torchvision()
    torch = judge("torch")

    aux = {} if name.startswith("lraspp") else {"aux_loss": True}
    ours, theirs = _pair(
        models.get_model_builder(name),
        vision.models.get_model_builder(name),
        weights_backbone=None,
        num_classes=3,
        **aux,
    )
    image = np.random.default_rng(0).standard_normal((2, 3, 24, 32))
    for train in (True, False):
        ours.train(train).double()
        theirs.train(train).double()
        flambeau.manual_seed(1)
        torch.manual_seed(1)
        a, b = ours(flambeau.from_numpy(image)), theirs(torch.from_numpy(image))
        _close(dict(a), dict(b), 1e-9)
        if train:
            sum(v.square().sum() for v in a.values()).backward()
            sum(v.square().sum() for v in b.values()).backward()
            _close([ours], [theirs], 1e-6, 1e-3, gradients)
    with flambeau.no_grad(), torch.no_grad():
        a, b = ours.float()(flambeau.from_numpy(image).float()), theirs.float()(torch.from_numpy(image).float())
    _close(dict(a), dict(b), 1e-5)


def test_auxiliary_classifiers() -> None:
    vision = torchvision()
    torch = judge("torch")

    ours, theirs = _pair(models.inception.InceptionAux, vision.models.inception.InceptionAux, 16, 5)
    x = np.random.default_rng(0).standard_normal((2, 16, 17, 17)).astype(np.float32)
    _close([ours.eval()(flambeau.from_numpy(x))], [theirs.eval()(torch.from_numpy(x))], 1e-5)


def test_residual_options() -> None:
    vision = torchvision()
    options = {"zero_init_residual": True, "replace_stride_with_dilation": [False, True, True], "num_classes": 4}
    ours, theirs = _pair(models.resnet50, vision.models.resnet50, **options)
    _compare(ours, theirs, 48, train=False)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "inception_v3", "googlenet", "shufflenet_v2_x0_5"])
def test_modules_run_in_torchvisions_order(name):
    """Hooks, and the summaries made by them, see it."""
    theirs = torchvision()
    torch = judge("torch")

    size = 107 if name == "inception_v3" else 64
    options = {"init_weights": False} if name in ("inception_v3", "googlenet") else {}
    found = []
    for library, zoo in ((flambeau, models), (torch, theirs.models)):
        model = getattr(zoo, name)(weights=None, **options).eval()
        order: list[str] = []
        for path, module in model.named_modules():
            module.register_forward_hook(lambda module, inputs, output, path=path, order=order: order.append(path))
        with library.no_grad():
            model(library.zeros(1, 3, size, size))
        found.append(order)
    assert found[0] == found[1]


def test_a_small_swin_transformer_averages_over_all_places():
    model = models.SwinTransformer([4, 4], 8, [1, 1], [1, 2], [2, 2], num_classes=3).eval()
    x = flambeau.randn(1, 3, 16, 16)
    assert model(x).shape == (1, 3)
    assert flambeau.allclose(model.head(model.norm(model.features(x)).mean((1, 2))), model(x), atol=1e-6)


def test_relative_positions_count_rows_and_columns_from_the_far_corner():
    attention = models.maxvit.RelativePositionalMultiHeadAttention(8, 4, 4)
    expected = [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]
    assert attention.relative_position_index.tolist() == expected


def test_names_are_those_of_all_builders_whatever_was_imported() -> None:
    code = "from flambeau.vision import models; print(len(models.list_models()), len(models.list_models(models.quantization)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["121", "12"]
