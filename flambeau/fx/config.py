"""Settings of passes, without effect here; programs written for PyTorch set them."""

disable_progress = True
verbose_progress = False
