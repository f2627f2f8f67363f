"""`torch.autograd.anomaly_mode`: where the switches for finding bad gradients live in PyTorch."""

from .grad_mode import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
