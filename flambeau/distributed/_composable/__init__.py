"""Where PyTorch keeps what changes a model for distributed training without wrapping it."""
