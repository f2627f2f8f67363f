"""PyTorch's module of sharding rules. Here they follow from the operators' records (`_rules`)."""
