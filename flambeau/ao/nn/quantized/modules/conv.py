"""Convolutions of quantized tensors, over 1 to 3 dimensions, and their transposes."""

from __future__ import annotations

from typing import Any, ClassVar

from .....core import dtype as dt
from .....core.tensor import Tensor
from .....nn.modules import conv as floats
from .....nn.modules.module import Module
from .....nn.modules.utils import _non_defaults, _ntuple
from .....nn.utils.fusion import fuse_conv_bn_weights
from .....ops.creation.construct import tensor
from .....ops.creation.filled import zeros
from .....ops.quantizing import tensors
from .....ops.quantizing.operators import quantized as Q
from .....ops.shape.padding import pad
from ... import intrinsic as nni
from ...intrinsic import qat as nniqat
from .utils import WeightedQuantizedModule, observed_weight

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

# What a pickled layer is, in this order, with its weights and bias before the scale.
_STATE = (
    "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "transposed", "output_padding", "groups",
    "padding_mode",
)  # fmt: skip


def _reverse_repeat_padding(padding: list[int]) -> list[int]:
    """Return the padding of each dimension in the order of `pad`: last dimension first, before and after."""
    both: list[int] = []
    for i in range(len(padding)):
        both += [padding[-1 - i], padding[-1 - i]]
    return both


class _ConvNd(WeightedQuantizedModule):
    """Base of all quantized convolutions. `_DIMS` is the number of dimensions, `_SHAPE` the batch shape for errors, `_OPERATOR` the
    operator that computes it; the other class attributes are the float layers that it can be made from, fused ones too."""

    _DIMS: ClassVar[Any]
    _SHAPE: ClassVar[str]
    _OPERATOR: ClassVar[Any]
    _FLOAT_MODULE: ClassVar[Any]
    _NNIQAT_CONV_BN_MODULE: ClassVar[Any] = None
    _NNI_CONV_RELU_MODULE: ClassVar[Any] = None
    _NNI_CONV_ADD_MODULE: ClassVar[Any] = None
    _NNI_CONV_ADD_RELU_MODULE: ClassVar[Any] = None

    def __init_subclass__(cls, dims: int | None = None) -> None:
        """Set the class attributes that follow from the number of dimensions."""
        super().__init_subclass__()
        if dims is None:
            return
        transposed = cls.__name__.startswith("ConvTranspose")
        cls._DIMS, cls._FLOAT_MODULE = dims, getattr(floats, cls.__name__)
        cls._SHAPE = ("(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)")[dims - 1]
        cls._OPERATOR = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
        if not transposed:
            cls._NNIQAT_CONV_BN_MODULE = getattr(nniqat, f"ConvBn{dims}d")
            cls._NNI_CONV_RELU_MODULE = getattr(nni, f"ConvReLU{dims}d")

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        sizes = _ntuple(self._DIMS)
        if not isinstance(padding, str):
            padding = sizes(padding)
        if isinstance(padding, str):
            raise NotImplementedError(f"padding={padding!r} is not supported by quantized convolutions: give numbers")
        extra = sizes(0)
        self._init(
            in_channels, out_channels, sizes(kernel_size), sizes(stride), padding, sizes(dilation), False, extra, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def _init(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
        output_padding: Any, groups: int, bias: bool, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        Module.__init__(self)
        if out_channels <= 0:
            raise ValueError(f"out_channels must be greater than 0, got {out_channels}")
        if in_channels % groups:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in ("zeros", "reflect"):
            raise ValueError(f"'padding_mode' {padding_mode} is not supported by quantized convolution")
        given = (
            in_channels, out_channels, kernel_size, stride, padding, dilation, transposed, output_padding, groups, padding_mode
        )  # fmt: skip
        for name, value in zip(_STATE, given):
            setattr(self, name, value)
        outer = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = [outer[0], outer[1] // groups, *kernel_size]
        weight = tensors._empty_affine_quantized(shape, scale=1, zero_point=0, dtype=dt.qint8, device=device)
        self.set_weight_bias(weight, zeros(out_channels, device=device) if bias else None)
        self.scale, self.zero_point = 1.0, 0

    # -- weights -----------------------------------------------------------------------------------------------------

    def _window_arguments(self) -> tuple:
        padding = self.padding if self.padding_mode == "zeros" else (0,) * self._DIMS
        extra = (self.output_padding,) if self.transposed else ()
        return (self.stride, padding, *extra, self.dilation, self.groups)

    def set_weight_bias(self, w: Tensor, b: Any) -> None:
        kind = "conv_transpose" if self.transposed else "conv"
        self._packed_params = getattr(Q, f"{kind}{self._DIMS}d_prepack")(w, b, *self._window_arguments())

    def _weight_bias(self) -> Any:
        return getattr(Q, f"conv{self._DIMS}d_unpack")(self._packed_params)

    def weight(self) -> Tensor:
        return self._weight_bias()[0]

    def bias(self) -> Any:
        return self._weight_bias()[1]

    # -- computing ---------------------------------------------------------------------------------------------------

    def _pad(self, input: Any) -> Any:
        if len(input.shape) != self._DIMS + 2:
            raise ValueError(f"Input shape must be `{self._SHAPE}`!")
        if self.padding_mode == "zeros":
            return input
        return pad(input, _reverse_repeat_padding(self.padding), mode=self.padding_mode)

    def forward(self, input: Tensor) -> Tensor:
        return getattr(Q, self._OPERATOR)(self._pad(input), self._packed_params, self.scale, self.zero_point)

    def _get_name(self) -> str:
        return f"Quantized{type(self).__name__}"

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        none, one = (0,) * self._DIMS, (1,) * self._DIMS
        text += f", scale={self.scale}, zero_point={self.zero_point}"
        text += _non_defaults(self, padding=none, dilation=one, output_padding=none, groups=1)
        return text + (", bias=False" if self.bias() is None else "")

    # -- files -------------------------------------------------------------------------------------------------------

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight_bias()
        destination[prefix + "scale"] = tensor(self.scale)
        destination[prefix + "zero_point"] = tensor(self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.set_weight_bias(state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias"))
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def __getstate__(self) -> Any:
        own = tuple(getattr(self, name) for name in _STATE)
        return (*own, *self._weight_bias(), self.scale, self.zero_point, self.training)

    def __setstate__(self, state: Any) -> None:
        Module.__init__(self)
        for name, value in zip(_STATE, state):
            setattr(self, name, value)
        weight, bias, self.scale, self.zero_point, self.training = state[len(_STATE) :]
        self.set_weight_bias(weight, bias)

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        return made

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    # -- from others -------------------------------------------------------------------------------------------------

    @classmethod
    def _from_float_sizes(cls, mod: Any) -> Any:
        """Make a quantized layer with the sizes of a float layer."""
        return cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.dilation, mod.groups,
            mod.bias is not None, mod.padding_mode,
        )  # fmt: skip

    @classmethod
    def get_qconv(cls, mod: Any, activation_post_process: Any, weight_post_process: Any = None) -> Any:
        """Make the quantized layer from a float one, with scales from these observers."""
        weights = mod.qconfig.weight() if weight_post_process is None else weight_post_process
        made = cls._from_float_sizes(mod)
        made.set_weight_bias(observed_weight(mod.weight, weights), mod.bias)
        if activation_post_process is not None and activation_post_process.dtype is not dt.float32:
            scale, zero_point = activation_post_process.calculate_qparams()
            made.scale, made.zero_point = float(scale), int(zero_point)
        return made

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Make the quantized layer from an observed or QAT layer."""
        observer = getattr(mod, "activation_post_process", None)
        if hasattr(mod, "weight_fake_quant"):
            if type(mod) is cls._NNIQAT_CONV_BN_MODULE:
                fold_norm(mod)
            if observer is None:
                raise AssertionError("Input QAT module must have observer attached")
            return cls.get_qconv(mod, observer, mod.weight_fake_quant)
        if type(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(
                f"nnq.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__} but got: {type(mod).__name__}"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined.")
        if type(mod) in (cls._NNI_CONV_RELU_MODULE, cls._NNI_CONV_ADD_MODULE, cls._NNI_CONV_ADD_RELU_MODULE):
            mod = mod[0]
        return cls.get_qconv(mod, observer, mod.qconfig.weight())

    @classmethod
    def from_reference(cls, ref_qconv: Any, output_scale: Any, output_zero_point: Any) -> Any:
        """Make the quantized layer from a reference layer."""
        made = cls._from_float_sizes(ref_qconv)
        made.set_weight_bias(ref_qconv.get_quantized_weight(), ref_qconv.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made


def fold_norm(mod: Any) -> None:
    """Fold a layer's normalisation into its weights."""
    bn = mod.bn
    if bn.running_var is None or bn.running_mean is None:
        raise AssertionError("mod.bn.running_var and mod.bn.running_mean must not be None")
    statistics = (bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    mod.weight, mod.bias = fuse_conv_bn_weights(mod.weight, mod.bias, *statistics)


class Conv1d(_ConvNd, dims=1):
    """Convolves quantized sequences (N, C, L); `scale` and `zero_point` are those of its results."""


class Conv2d(_ConvNd, dims=2):
    """Convolves quantized images or feature maps (N, C, H, W); `scale` and `zero_point` are those of its results."""

    _NNI_CONV_ADD_MODULE: ClassVar[Any] = nni.ConvAdd2d
    _NNI_CONV_ADD_RELU_MODULE: ClassVar[Any] = nni.ConvAddReLU2d


class Conv3d(_ConvNd, dims=3):
    """Convolves quantized volumes (N, C, D, H, W); `scale` and `zero_point` are those of its results."""


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
        groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        sizes = _ntuple(self._DIMS)
        self._init(
            in_channels, out_channels, sizes(kernel_size), sizes(stride), sizes(padding), sizes(dilation), True,
            sizes(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    @classmethod
    def _from_float_sizes(cls, mod: Any) -> Any:
        return cls(
            mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding, mod.output_padding, mod.groups,
            mod.bias is not None, mod.dilation, mod.padding_mode,
        )  # fmt: skip


class ConvTranspose1d(_ConvTransposeNd, dims=1):
    """Transposed convolution of quantized sequences (N, C, L)."""


class ConvTranspose2d(_ConvTransposeNd, dims=2):
    """Transposed convolution of quantized feature maps (N, C, H, W)."""


class ConvTranspose3d(_ConvTransposeNd, dims=3):
    """Transposed convolution of quantized volumes (N, C, D, H, W)."""
