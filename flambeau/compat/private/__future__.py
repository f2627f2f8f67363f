"""`torch.__future__`: switches for conversions of a module's parameters that may become the default in a later version.

>>> flambeau.__future__.get_swap_module_params_on_conversion()
False
"""

from __future__ import annotations

from ...nn.modules.conversion import ConversionFlags


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Set whether conversions such as `module.to(...)` make new parameters instead of changing the data of the old ones."""
    ConversionFlags.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Return whether conversions make new parameters."""
    return ConversionFlags.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Set whether `module.to(...)` and `load_state_dict` exchange each parameter with its new value by `swap_tensors`."""
    ConversionFlags.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Return whether conversions and loading exchange parameters."""
    return ConversionFlags.swap
