"""`torch.backends`: switches of the libraries that PyTorch uses, each a module `torch.backends.<name>`."""
