"""What is passed on to people and other processes: facts about the installation, exceptions."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from flambeau._utils import ExceptionWrapper
from flambeau.utils import collect_env


def test_environment():
    text = collect_env.get_pretty_env_info()
    assert f"numpy=={np.__version__}" in text and "oneDNN" in text


def test_exceptions_are_raised_again_elsewhere():
    try:
        raise KeyError("missing")
    except KeyError:
        wrapper = ExceptionWrapper(where="in thread 3")
    with pytest.raises(KeyError, match="Caught KeyError in thread 3"):
        pickle.loads(pickle.dumps(wrapper)).reraise()
    with pytest.raises(ValueError, match="no exception"):
        ExceptionWrapper((None, None, None))
