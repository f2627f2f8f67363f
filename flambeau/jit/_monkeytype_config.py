"""Types from examples (`script(f, example_inputs=...)`) need MonkeyType in PyTorch; here they are not read."""

_IS_MONKEYTYPE_INSTALLED = False
