"""Files that Python runs at its start: this folder is on the module path of the processes that a program with Flambeau as torch starts.

`sitecustomize.py` is imported by Python at every start, `flambeau_torch_later.py` by it or by the file that `flambeau activate`
writes. Both keep to what every Python 3 understands, and import nothing of Flambeau until a program asks for torch.
"""
