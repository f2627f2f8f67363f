"""Settings of PyTorch's graph capture. Programs may set and read them; nothing here asks for them."""

cache_size_limit = 8
recompile_limit = 8
suppress_errors = False
verbose = False
