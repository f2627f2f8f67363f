"""Settings of `torch.distributed`. Programs may set and read them; nothing here asks for them."""

compile_on_one_rank = use_torchcomms = False
