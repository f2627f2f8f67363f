"""Published weights, model builders, and lookup of builders by name.

A family of models is a class and a few lines of table:

    ResNet18_Weights, ResNet34_Weights = weights_enums("ResNet18", "ResNet34")
    resnet18 = builder("resnet18", _resnet, ResNet18_Weights, BasicBlock, [2, 2, 2, 2])

What is known about published files (address, size, accuracy, preprocessing) is in `flambeau/data/vision_weights.json`.
"""

from __future__ import annotations

import fnmatch
import functools
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import ModuleType
from typing import Any, TypeVar

from flambeau import hub, nn
from flambeau.core import naming

from .._categories import categories, data_text

__all__ = [
    "Weights", "WeightsEnum", "get_model", "get_model_builder", "get_model_weights", "get_weight", "list_models", "register_model",
]  # fmt: skip

Model = TypeVar("Model", bound=nn.Module)
BUILDERS: dict[str, Callable[..., nn.Module]] = {}
_WEIGHTS: dict[str, type[WeightsEnum]] = {}


@dataclass(eq=False)
class Weights:
    """A published state dict: its URL, the preprocessing of its images, and metadata."""

    url: str
    transforms: Callable[..., Any]
    meta: dict[str, Any]


class WeightsEnum(Enum):
    """The published weights of one model; `DEFAULT` is the best of them."""

    @classmethod
    def verify(cls, obj: Any) -> Any:
        """Return a member given as itself, by name ("DEFAULT") or by full name ("ResNet18_Weights.DEFAULT"); None stays None."""
        if obj is None or isinstance(obj, cls):
            return obj
        if isinstance(obj, str):
            return cls[obj.removeprefix(cls.__name__ + ".")]
        raise TypeError(
            f"Invalid Weight class provided; expected {cls.__name__} but received {obj.__class__.__name__}."
        )

    def get_state_dict(self, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Load the weights; arguments are those of `flambeau.hub.load_state_dict_from_url`."""
        return hub.load_state_dict_from_url(self.url, *args, **kwargs)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}.{self._name_}"

    @property
    def url(self) -> str:
        return self.value.url

    @property
    def transforms(self) -> Callable[..., Any]:
        return self.value.transforms

    @property
    def meta(self) -> dict[str, Any]:
        return self.value.meta


# --- the table of published weights


@functools.cache
def _published_weights() -> dict[str, Any]:
    return json.loads(data_text("vision_weights.json"))


class Preset:
    """Constructor of the transform that prepares images for a model, from `flambeau.vision.transforms._presets`."""

    def __init__(self, preset: str, **options: Any):
        self.preset = preset
        self.options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}

    def __call__(self, **changes: Any) -> Any:
        presets = naming.above("vision.transforms._presets")
        options = {**self.options, **changes}
        if isinstance(options.get("interpolation"), str):
            options["interpolation"] = presets.InterpolationMode(options["interpolation"])
        return getattr(presets, self.preset)(**options)

    def __repr__(self) -> str:
        return f"{self.preset}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


def _entry(record: dict[str, Any]) -> Weights:
    meta = dict(record["meta"])
    meta["min_size"] = tuple(meta["min_size"])
    if "categories" in meta:
        meta.update(categories(meta["categories"]))
    if "unquantized" in meta:
        meta["unquantized"] = get_weight(meta["unquantized"])
    return Weights(record["url"], Preset(**record["transforms"]), meta)


def weights_enums(*models: str) -> list[Any]:
    """Return the enums `<model>_Weights` of these models, as if defined in the caller's module."""
    module = sys._getframe(1).f_globals["__name__"]
    return [published_weights(f"{model}_Weights", module) for model in models]


def published_weights(name: str, module: str) -> Any:
    """Return the enum of published weights with this name, as if defined in a module."""
    record = _published_weights()[name]
    members: dict[str, Weights] = {key: _entry(entry) for key, entry in record["entries"].items()}
    members["DEFAULT"] = members[record["default"]]  # equal values: an alias, not a second member
    made: Any = WeightsEnum(name, members, module=module)  # type: ignore[call-arg]
    made.__doc__ = f"Trained weights of {name.removesuffix('_Weights')}: of each member its `url`, `transforms()` that prepare images, and `meta`."
    _WEIGHTS[name] = made
    return made


# --- builders


def register_model(name: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a builder for `get_model` and `list_models`, under its own or the given name."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        key = (name if name is not None else function.__name__).lower()
        if key in BUILDERS:
            raise ValueError(f"An entry is already registered under the name '{key}'.")
        BUILDERS[key] = function
        return function

    return register


def expect_option(kwargs: dict[str, Any], name: str, value: Any) -> None:
    """Set an option that the chosen weights require; a different value given by the caller is an error."""
    given = kwargs.setdefault(name, value)
    if given != value:
        raise ValueError(f"The parameter '{name}' expected value {value} but got {given} instead.")


def expect_value(name: str, given: Any, value: Any) -> Any:
    """`expect_option` for an argument whose default is None."""
    if given is not None and given != value:
        raise ValueError(f"The parameter '{name}' expected value {value} but got {given} instead.")
    return value


def _legacy(function: str, kwargs: dict[str, Any], new: str, enum: Any, default: str | None) -> None:
    """Accept the former argument `pretrained` in place of `weights`, and its former type, a bool."""
    old = "pretrained" + new.removeprefix("weights")
    value = kwargs.get(new)
    if new in kwargs and (value is None or isinstance(value, (str, WeightsEnum))):
        return
    if old not in kwargs and new not in kwargs:
        return
    if old in kwargs:
        warnings.warn(
            f"The parameter '{old}' is deprecated since 0.13 and may be removed in the future, please use '{new}' "
            "instead.",
            stacklevel=3,
        )
        value = kwargs.pop(old)
    chosen = None
    if value:
        if default is None:
            raise ValueError(f"No weights are available for model {function}")
        chosen = enum[default]
    meaning = f"The current behavior is equivalent to passing `{new}={chosen!r}`."
    if chosen is not None:
        meaning += f" You can also use `{new}={enum.__name__}.DEFAULT` to get the most up-to-date weights."
    warnings.warn(
        f"Arguments other than a weight enum or `None` for '{new}' are deprecated since 0.13 and may be removed in the "
        f"future. {meaning}",
        stacklevel=3,
    )
    kwargs[new] = chosen


def model_builder(
    weights: Any,
    legacy: str | None = "IMAGENET1K_V1",
    backbone: Any = None,
    backbone_legacy: str = "IMAGENET1K_V1",
    choose: Callable[[dict[str, Any]], Any] | None = None,
) -> Callable[[Callable[..., Model]], Callable[..., Model]]:
    """Decorator for a builder f(*, weights, progress, ..., weights_backbone): registers it, reads weights given by name,
    and accepts the arguments of old releases (positional weights, `pretrained`, `pretrained_backbone`). A model that can be quantized
    has two kinds of weights: `choose(arguments)` says which, and it is registered as `quantized_...`."""

    def decorate(function: Callable[..., Model]) -> Callable[..., Model]:
        parameters = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]

        @functools.wraps(function)
        def build(*args: Any, **kwargs: Any) -> Model:
            if args:
                if len(args) > len(parameters):
                    raise TypeError(f"{function.__name__}() takes at most {len(parameters)} arguments, got {len(args)}")
                names = parameters[: len(args)]
                listed = ", ".join(f"'{name}'" for name in names)
                warnings.warn(
                    f"Using {listed} as positional parameter(s) is deprecated since 0.13 and may be removed in the future. "
                    "Please use keyword parameter(s) instead.",
                    stacklevel=2,
                )
                twice = [name for name in names if name in kwargs]
                if twice:
                    raise TypeError(f"{function.__name__}() got multiple values for argument '{twice[0]}'")
                kwargs.update(zip(names, args))
            enum = weights if choose is None else choose(kwargs)
            _legacy(function.__name__, kwargs, "weights", enum, legacy if choose is None else next(iter(enum)).name)
            kwargs["weights"] = enum.verify(kwargs.get("weights"))
            if backbone is not None:
                _legacy(function.__name__, kwargs, "weights_backbone", backbone, backbone_legacy)
                if "weights_backbone" in kwargs:
                    kwargs["weights_backbone"] = backbone.verify(kwargs["weights_backbone"])
            return function(**kwargs)

        build.__weights__ = weights  # type: ignore[attr-defined]
        register_model(None if choose is None else f"quantized_{function.__name__}")(build)
        return build

    return decorate


def load_weights(model: Any, weights: Any, progress: bool) -> Any:
    """Return the model, with the state dict of `weights` loaded unless that is None."""
    if weights is not None:
        model.load_state_dict(weights.get_state_dict(progress=progress, check_hash=True))
    return model


def builder(
    name: str,
    construct: Callable[..., Model],
    weights: Any,
    *fixed: Any,
    forced: Mapping[str, Any] | None = None,
    prepare: Callable[[dict[str, Any], Any], None] | None = None,
    **defaults: Any,
) -> Callable[..., Model]:
    """Return the builder of a classifier: `construct(*fixed, **{**defaults, **kwargs})`, then its weights.
    `forced`: options that define the model, so that other values are errors; `prepare(kwargs, weights)` sets what the chosen weights
    require besides the number of classes."""

    def build(*, weights: Any = None, progress: bool = True, **kwargs: Any) -> Model:
        for option, value in (forced or {}).items():
            expect_option(kwargs, option, value)
        if weights is not None:
            if prepare is not None:
                prepare(kwargs, weights)
            if weights.meta["categories"] is not None:
                expect_option(kwargs, "num_classes", len(weights.meta["categories"]))
        return load_weights(construct(*fixed, **{**defaults, **kwargs}), weights, progress)

    build.__name__ = build.__qualname__ = name
    build.__module__ = sys._getframe(1).f_globals["__name__"]
    first_line = (construct.__doc__ or construct.__name__).split("\n")[0]
    build.__doc__ = (
        f"{name}: {first_line}\n\n`weights` is None (random), a member of `{weights.__name__}` or its name; other "
        "arguments go to the model."
    )
    pretrained = [member for member in ("IMAGENET1K_V1", "KINETICS400_V1") if member in weights.__members__]
    return model_builder(weights, pretrained[0] if pretrained else None)(build)


# --- finding builders and weights by name


def list_models(
    module: ModuleType | None = None,
    include: Iterable[str] | str | None = None,
    exclude: Iterable[str] | str | None = None,
) -> list[str]:
    """Names of the registered builders; `include` and `exclude` are shell patterns.

    >>> from flambeau.vision import models
    >>> models.list_models(include="resnet1*")
    ['resnet101', 'resnet152', 'resnet18']
    """
    naming.above("vision.models.quantization")
    names = {n for n, b in BUILDERS.items() if module is None or b.__module__.rsplit(".", 1)[0] == module.__name__}
    if include:
        names = {n for pattern in _as_patterns(include) for n in fnmatch.filter(names, pattern)}
    if exclude:
        names -= {n for pattern in _as_patterns(exclude) for n in fnmatch.filter(names, pattern)}
    return sorted(names)


def _as_patterns(given: Iterable[str] | str) -> Iterable[str]:
    return [given] if isinstance(given, str) else given


def get_model_builder(name: str) -> Callable[..., nn.Module]:
    """Return the builder registered under this name."""
    if name.lower().startswith("quantized_"):
        naming.above("vision.models.quantization")
    try:
        return BUILDERS[name.lower()]
    except KeyError:
        raise ValueError(f"Unknown model {name.lower()}") from None


def get_model(name: str, **config: Any) -> nn.Module:
    """Build a model by name.

    >>> from flambeau.vision import models
    >>> model = models.get_model("mobilenet_v3_small", num_classes=10)
    """
    return get_model_builder(name)(**config)


def get_model_weights(name: Callable[..., Any] | str) -> type[WeightsEnum]:
    """Return the enum of a model's published weights."""
    function: Any = get_model_builder(name) if isinstance(name, str) else name
    enum = getattr(function, "__weights__", None)
    if enum is None:
        raise ValueError("The weight enum for the specific method couldn't be retrieved.")
    return enum


def get_weight(name: str) -> WeightsEnum:
    """Return weights by their full name, such as "ResNet50_Weights.IMAGENET1K_V1"."""
    if name.count(".") != 1:
        raise ValueError(f"Invalid weight name provided: '{name}'.")
    enum_name, member = name.split(".")
    if enum_name.endswith("_QuantizedWeights"):
        naming.above("vision.models.quantization")
    enum = _WEIGHTS.get(enum_name)
    if enum is None:
        raise ValueError(f"The weight enum '{enum_name}' couldn't be found.")
    return enum[member]
