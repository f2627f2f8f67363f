"""The steps of vmap that libraries with collections of tensors of their own replace."""

from __future__ import annotations

import flambeau
from flambeau.core.pytree import tree_flatten
from flambeau.func import mapping


class Box:
    """A collection with a size of its own, which no structure of Python tells."""

    def __init__(self, value, size):
        self.value, self.size = value, size


def test_a_collection_hides_and_shows_the_batch_itself(monkeypatch):
    def process(in_dims, args, func):
        leaves, spec = tree_flatten(args)
        return leaves[0].size[0], [0], leaves, spec

    def create(dims, leaves, level, spec):
        return [Box(mapping._add_batch_dim(leaves[0].value, 0, level), leaves[0].size[1:])]

    def unwrap(output, out_dims, level, size, func):
        value = mapping._maybe_remove_batch_dim(mapping._get_name(func), output.value, level, size, out_dims)
        return Box(value, [size, *output.size])

    monkeypatch.setattr(mapping, "_process_batched_inputs", process)
    monkeypatch.setattr(mapping, "_create_batched_inputs", create)
    monkeypatch.setattr(mapping, "_unwrap_batched", unwrap)
    seen = []

    def total(box):
        seen.append((tuple(box.value.shape), box.size))
        return Box(box.value.sum(), [])

    result = flambeau.vmap(total)(Box(flambeau.ones(3, 4), [3, 4]))
    assert seen == [((4,), [4])] and result.value.tolist() == [4.0] * 3 and result.size == [3]
