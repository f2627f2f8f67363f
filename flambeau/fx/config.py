"""Settings of passes; kept for programs that set them."""

disable_progress = True
verbose_progress = False
