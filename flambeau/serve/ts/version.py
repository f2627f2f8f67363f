"""The version of TorchServe whose interface this is."""

__version__ = "0.12.0"
