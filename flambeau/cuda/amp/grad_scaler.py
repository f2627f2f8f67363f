"""The older name of the scaler on CUDA; new programs use `flambeau.amp.GradScaler`."""

from ...amp.older import OlderGradScaler

__all__ = ["GradScaler"]


class GradScaler(OlderGradScaler):
    """`flambeau.amp.GradScaler("cuda", ...)`."""

    kind = "cuda"
