"""Settings of PyTorch's graph capture. Programs may set and read them; nothing here asks for them."""

cache_size_limit = 8
capture_scalar_outputs = False
optimize_ddp = True
recompile_limit = 8
skip_fwd_side_effects_in_bwd_under_checkpoint = False
suppress_errors = False
verbose = False
