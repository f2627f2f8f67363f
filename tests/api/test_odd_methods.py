"""Methods of tensors that few call, signatures, and overrides."""

from __future__ import annotations

import inspect
import warnings

import pytest
from answers import judge

import flambeau
import flambeau.overrides

torch = judge("torch")
judge("torch.overrides")
judge("torch.utils.benchmark")

LIBRARIES = pytest.mark.parametrize("T", [flambeau, torch], ids=["flambeau", "torch"])
LINES = """
t.__delitem__(0)
t.__long__()
T.tensor(3.5).__long__()
t.__nonzero__()
T.tensor(0.0).__nonzero__()
t.module_load(T.ones(3))
t.module_load(T.ones(3), assign=True)
t.map2_(t, T.ones(1), lambda a, b, c: a + b + c)
T.nn.Parameter(t).map2_(t, t, max)
t.resize(3, 1)
t.resize_as(T.ones(1, 3))
t.xpu()
t.ipu()
t.dequantize()
t.__cuda_array_interface__
t.dim_order(ambiguity_check=False)
T.ones(2, 1, 3).dim_order(ambiguity_check=True)
T.ones(2, 1, 3).dim_order(ambiguity_check=[T.contiguous_format])
T.ones(2, 1, 4, 5).dim_order(ambiguity_check=[T.contiguous_format, T.channels_last])
T.ones(2, 3).t().dim_order(ambiguity_check=True)
t.expand(2, 3).dim_order()
t.dim_order(ambiguity_check=5)
"""


def outcome(T, line):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = eval(line, {"T": T, "t": T.arange(3.0)})
    except Exception as error:
        return type(error).__name__, str(error)
    return result.tolist() if isinstance(result, T.Tensor) else result


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_methods(line):
    assert outcome(flambeau, line) == outcome(torch, line)


def test_reinforce_is_gone():
    with pytest.raises(RuntimeError, match="removed"):
        flambeau.ones(1).reinforce(1)


SAME_SIGNATURES = """
set_grad_enabled autograd.set_detect_anomaly set_default_device random.fork_rng nn.parameter.is_lazy utils.hooks.RemovableHandle
autograd.function.once_differentiable testing.assert_close testing.make_tensor masked.sum masked.var
masked.softmax masked.normalize masked.logaddexp nn.attention.sdpa_kernel autograd.graph.register_multi_grad_hook
autograd.graph.get_gradient_edge utils.benchmark.TaskSpec utils.benchmark.Measurement utils.benchmark.Compare futures.Future
overrides.wrap_torch_function overrides.resolve_name utils.set_module get_device_module get_file_path
"""


def parameters(T, path):
    value = T
    for part in path.split("."):
        value = getattr(value, part)
    found = inspect.signature(value).parameters.values()
    return [(p.name, p.kind, None if callable(p.default) else p.default) for p in found]


@pytest.mark.parametrize("path", SAME_SIGNATURES.split())
def test_signatures(path):
    assert parameters(flambeau, path) == parameters(torch, path)


@pytest.mark.parametrize(
    "path",
    ["add", "nn.functional.relu", "linalg.svd", "fft.fft", "special.i0e", "Tensor.shape.__get__", "Tensor.__add__"],
)
def test_names_of_operators(path):
    def named(T):
        value = T
        for part in path.split("."):
            value = getattr(value, part)
        return T.overrides.resolve_name(value)

    assert named(flambeau) == named(torch) == f"torch.{path}"


@LIBRARIES
def test_functions_of_the_user_can_be_overridden(T):
    class Loud(T.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return f"loud {func.__name__}"

    @T.overrides.wrap_torch_function(lambda a, b=None: (a, b))
    def pair(a, b=None):
        """Two."""
        return "plain"

    with T._C.DisableTorchFunctionSubclass():
        loud = T.ones(2).as_subclass(Loud)
    assert pair(T.ones(1)) == "plain" and pair(T.ones(1), loud) == "loud pair" and pair.__doc__ == "Two."
    assert T.overrides.resolve_name(pair) is None and T.overrides.is_tensor_method_or_property(T.Tensor.shape.__get__)
    assert T.add in T.overrides.get_overridable_functions()[T]


def test_results_given_as_out_have_names():
    assert flambeau.return_types.max_out.__name__ == "max_out"
    with pytest.raises(AttributeError):
        _ = flambeau.return_types.nothing_out
