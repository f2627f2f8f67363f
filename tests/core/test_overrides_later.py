"""Subclasses of tensors that operators look for only once there is an instance."""

from __future__ import annotations

import copy
import subprocess
import sys

import flambeau
from flambeau.core import overrides


def test_kinds_of_images_cost_nothing_before_the_first():
    code = (
        "import flambeau; from flambeau.core import modes; from flambeau.vision import tv_tensors;"
        "before = len(modes.active); image = tv_tensors.Image(flambeau.zeros(1, 2, 2));"
        "print(before, len(modes.active), type(image + 1).__name__, type(image.clone()).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "0 1 Tensor Image\n", done.stderr


def test_a_class_is_known_with_its_first_instance():
    class Marked(flambeau.Tensor):
        _known_when_made = True

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    assert Marked not in overrides._REGISTERED
    with overrides.DisableTorchFunction():
        instance = flambeau.ones(2).as_subclass(Marked)
    assert flambeau.relu(instance) == "relu" and flambeau.add(flambeau.ones(2), instance) == "add"


def test_a_copy_of_the_first_instance_is_known():
    class Kept(flambeau.Tensor):
        _known_when_made = True

    made = flambeau.Tensor._make_subclass(Kept, flambeau.ones(2))
    assert type(made + 1) is Kept and type(copy.deepcopy(made)) is Kept
