"""Version of TorchServe whose interface is implemented."""

__version__ = "0.12.0"
