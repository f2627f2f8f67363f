"""The names of types that TorchScript's programs import from here."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: F401, UP035
