"""The older name of the scaler on CUDA; new programs use `flambeau.amp.GradScaler`."""

from ...amp.grad_scaler import OptState
from ...amp.older import OlderGradScaler

__all__ = ["GradScaler", "OptState"]


class GradScaler(OlderGradScaler):
    """`flambeau.amp.GradScaler("cuda", ...)`."""

    kind = "cuda"
