"""`torch.numa`: options for binding workers to parts of a machine."""
