"""`torch.numa`: how workers may be bound to parts of a machine."""
