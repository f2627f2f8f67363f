"""Placeholder for PyTorch's MonkeyType support: `script(f, example_inputs=...)` does not infer types from examples here."""

_IS_MONKEYTYPE_INSTALLED = False
