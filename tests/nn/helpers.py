"""Moving values between the two libraries."""

import numpy as np


def numbers(t):
    return t.detach().double().numpy()


def inputs(torch, flambeau, shapes, seed=0):
    """The same random inputs for both libraries, recording gradients."""
    random = np.random.default_rng(seed)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    theirs = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    ours = [flambeau.from_numpy(a.copy()).requires_grad_() for a in arrays]
    return theirs, ours


def leaves(value):
    """The tensors of a result."""
    return [t for v in value for t in leaves(v)] if isinstance(value, (tuple, list)) else [value]


def same_state(theirs, ours):
    """Two state dicts with equal names, dtypes and bits."""
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert str(ours[name].dtype) == str(value.dtype), name
        assert tuple(ours[name].shape) == tuple(value.shape), name
        np.testing.assert_array_equal(numbers(ours[name]), numbers(value), err_msg=name)
