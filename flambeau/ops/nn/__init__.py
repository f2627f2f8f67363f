"""What nn.functional adds: layers, losses, attention, pooling, normalisation."""
