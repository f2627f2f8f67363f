"""Operators of nn.functional: layers, losses, attention, pooling, normalisation."""
