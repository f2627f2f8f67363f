"""Settings of `torch.distributed`. Programs may set and read them; they have no effect here."""

compile_on_one_rank = use_torchcomms = False
