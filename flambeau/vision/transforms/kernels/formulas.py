"""Colour formulas, each one pass over the image: bytes are read, computed on as floats and written as bytes.

A conversion to an integer dtype truncates the fraction, as torchvision's does; formulas clip first, so nothing wraps around.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.core import dtype as dt
from flambeau.expr import floor, fma, fmod, maximum, minimum, pow_, where
from flambeau.ops.machinery.faces import make_face
from flambeau.ops.machinery.formula import Pointwise
from flambeau.ops.machinery.public import dress
from flambeau.ops.machinery.record import Op


def _as_image(op: Any, operands: tuple) -> tuple[Any, Any]:
    """Compute in float (float64 if the image is), return the image's own dtype."""
    own = operands[0].dtype
    return (own if own.is_floating_point else dt.float32), own


def _as_float(op: Any, operands: tuple) -> tuple[Any, Any]:
    """Compute in and return float: the image's own dtype where it is one."""
    own = operands[0].dtype
    kind = own if own.is_floating_point else dt.float32
    return kind, kind


def _formula(rule: Callable) -> Callable:
    def declare(formula: Callable) -> Callable:
        impl = Pointwise(formula.__name__, formula, rule)
        face = make_face(impl, False)
        op = Op(formula.__name__, "pointwise", face, (), None, None, False, True, impl, (), formula.__doc__ or "")
        dress(face, op, formula, face.unwatched_twin)
        return face

    return declare


def _clip(x: Any, bound: Any) -> Any:
    return maximum(minimum(x, bound), 0.0)


@_formula(_as_image)
def scaled(image, factor=1.0, bound=1.0):
    """Change the brightness: multiply every value by a factor."""
    return _clip(image * factor, bound)


@_formula(_as_image)
def blended(image, other, ratio=1.0, rest=0.0, bound=1.0):
    """Return `ratio` of the image plus `rest` of the other; a ratio above 1 moves away from the other."""
    return _clip(image * ratio + other * rest, bound)


@_formula(_as_image)
def blended_in_one_step(image, other, ratio=1.0, rest=0.0, bound=1.0):
    """Return the blend, rounded once: truncation may then give the next integer."""
    return _clip(fma(other, rest, image * ratio), bound)


@_formula(_as_image)
def moved_away(image, other, rest=0.0, bound=1.0):
    """Return the image plus `rest` of the difference to the other."""
    return _clip(fma(other - image, rest, image), bound)


@_formula(_as_image)
def luminance(red, green, blue):
    """Return the luminance of a colour (ITU-R 601)."""
    return 0.2989 * red + 0.587 * green + 0.114 * blue


@_formula(_as_image)
def luminance_in_steps(red, green, blue):
    """Return the luminance, rounded after each addition."""
    return fma(blue, 0.114, fma(green, 0.587, red * 0.2989))


@_formula(_as_image)
def stretched(image, low, scale, bound=1.0):
    """Apply autocontrast, computed by multiplication."""
    return _clip((image - low) * scale, bound)


@_formula(_as_image)
def stretched_by_division(image, low, width, bound=1.0):
    """Apply autocontrast, computed by division."""
    return _clip((image - low) / width, bound)


@_formula(_as_float)
def gamma_curve(image, gamma=1.0, gain=1.0):
    """Apply gamma correction to values from 0 to 1."""
    return _clip(gain * pow_(image, gamma), 1.0)


@_formula(_as_float)
def hue_shifted(red, green, blue, channel, shift=0.0):
    """A colour channel after turning the hue by `shift` turns; `channel` is 5, 3, 1 for red, green, blue.

    Hue, saturation and value from the largest and smallest colour (Smith, 1978). Back in one form for all channels: a channel is
    value * (1 - saturation * w), and w goes up, stays at 1, comes down and stays at 0 along the six sectors of the colour circle."""
    top = maximum(maximum(red, green), blue)
    spread = top - minimum(minimum(red, green), blue)
    flat = spread == 0
    divisor = where(flat, 1.0, spread)
    to_red, to_green, to_blue = (top - red) / divisor, (top - green) / divisor, (top - blue) / divisor
    sector = where(top == red, to_blue - to_green, where(top == green, 2.0 + to_red - to_blue, 4.0 + to_green - to_red))
    hue = fmod(sector / 6.0 + 1.0, 1.0) + shift
    hue = hue - floor(hue)
    saturation = spread / where(flat, 1.0, top)
    sixth = floor(hue * 6.0)
    part = hue * 6.0 - sixth
    place = fmod(channel + sixth, 6.0)
    weight = where(place == 0.0, part, where(place == 3.0, 1.0 - part, where(place < 3.0, 1.0, 0.0)))
    return _clip(top * (1.0 - saturation * weight), 1.0)


@_formula(_as_float)
def normalized(image, mean, std):
    """Subtract the mean and divide by the deviation."""
    return (image - mean) / std


@_formula(_as_float)
def unit_from_bytes(image):
    """Map 0..255 to 0..1."""
    return image / 255.0


@_formula(_as_image)
def quantized(image, levels=1.0):
    """Round floats from 0 to 1 to `levels` steps."""
    return _clip(floor(image * levels), levels - 1.0) / levels


@_formula(_as_image)
def filled_where_outside(image, inside, fill):
    """Return the image where it was sampled inside, blended with `fill` at the border."""
    return (image - fill) * inside + fill


@_formula(_as_float)
def mapped(x, y, a, b, c):
    """Apply a linear map to pixel coordinates, rounded after every step, because nearest neighbours decide ties by the last bit."""
    return x * a + y * b + c


@_formula(_as_float)
def projected(x, y, a, b, c, g, h):
    """Apply a projection to pixel coordinates, counted from -1."""
    return (x * a + y * b + c) / (x * g + y * h + 1.0) - 1.0
