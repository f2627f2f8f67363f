"""Module that Python imports when it starts with this folder on PYTHONPATH: it makes torch mean Flambeau.

An environment may have a `sitecustomize` of its own, which would have been imported instead: it is imported next.
"""

import os
import sys

import flambeau_torch_later

flambeau_torch_later.come_first()

_here = os.path.dirname(os.path.abspath(__file__))
_place = next((i for i, folder in enumerate(sys.path) if os.path.abspath(folder) == _here), 0)
_entry = sys.path.pop(_place)  # so that the import below finds the next one
_own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize  # noqa: F401
except ImportError as problem:
    if problem.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _own
finally:
    sys.path.insert(_place, _entry)
