"""A first look at what makes a program slow: `python -m flambeau.utils.bottleneck script.py`."""
