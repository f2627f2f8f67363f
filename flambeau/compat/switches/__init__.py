"""`torch.backends`: switches of the libraries that PyTorch uses, each a module that programs know as `torch.backends.<name>`."""
