"""What the tests of torch.nn share."""

from __future__ import annotations

from typing import Any

import torch

from .case import TestCase
from .common_utils import freeze_rng_state  # noqa: F401 - the tests import it from here
from .permissive import guess

module_tests: list = []
criterion_tests: list = []
loss_reference_fns: dict = {}


def get_new_module_tests() -> list:
    return []


class NewModuleTest:
    """A layer with its arguments and a reference, of which the file makes tests: tests/nn compares layers one by one."""

    with_tf32 = False

    def __init__(self, **options: Any):
        module = options.get("constructor") or options.get("cpp_constructor_args")
        self.title = options.get("fullname") or options.get("module_name") or repr(module)
        self.description = options.get("desc")

    def get_name(self) -> str:
        return "_".join(filter(None, [f"test_{self.title}", self.description]))

    def __call__(self, case: TestCase) -> None:
        case.skipTest("layers are compared elsewhere")

    def test_cuda(self, case: TestCase) -> None:
        case.skipTest("needs an accelerator")


CriterionTest = NewModuleTest


class NNTestCase(TestCase):
    """Calls of modules, and of their derivatives."""

    def _forward(self, module: Any, input: Any) -> Any:
        return module(input)

    def _backward(self, module: Any, input: Any, output: Any, grad_output: Any, create_graph: bool = False) -> Any:
        output.backward(grad_output, retain_graph=True, create_graph=create_graph)
        return None if input.grad is None else input.grad.data

    def _zero_grad_input(self, input: Any) -> None:
        if input.requires_grad and input.grad is not None:
            input.grad.zero_()
            input.grad.detach_()


def _create_basic_net() -> tuple[Any, Any, Any]:
    """A module with a parameter and a buffer, in one that has the same, in a sequence."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer_dummy_param = torch.nn.Parameter(torch.empty(3, 5))
            self.layer_dummy_buf = torch.nn.Buffer(torch.zeros(1, 3, 3, 7))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l1 = Layer()
            self.dummy_param = torch.nn.Parameter(torch.empty(3, 5))
            self.dummy_buf = torch.nn.Buffer(torch.zeros(7, 3, 3, 1))

    net = Net()
    return net.l1, net, torch.nn.Sequential(net)


def _test_bfloat16_ops(
    case: Any, op: Any, device: Any, inp_dims: Any = (), prec: float = 1e-2, scale_factor: Any = None
) -> None:
    """The operation on float32 and on the same numbers in bfloat16, forward and backward."""
    single = torch.randn(inp_dims, dtype=torch.float32, device=device)
    if scale_factor is not None:
        single = (torch.rand(inp_dims, dtype=torch.bfloat16, device=device) * scale_factor).float()
    half = single.bfloat16().requires_grad_()
    single.requires_grad_()
    results = op(single), op(half)
    case.assertEqual(results[0], results[1].float(), atol=prec, rtol=prec)
    grad = torch.randn(results[1].shape, dtype=torch.bfloat16, device=device)
    results[0].backward(grad.float())
    results[1].backward(grad)
    case.assertEqual(single.grad, half.grad.float(), atol=prec, rtol=prec)


def _test_module_empty_input(
    case: Any, module: Any, inp: Any, check_size: bool = True, inference: bool = False
) -> None:
    """A module takes a batch without elements, and gives it a gradient."""
    inp.requires_grad_(not inference)
    out = module(inp)
    if not inference:
        out.backward(torch.rand_like(out))
    if check_size:
        case.assertEqual(out.size(), inp.size())
    if inference:
        return
    for parameter in module.parameters():
        if parameter.requires_grad:
            case.assertEqual(parameter.grad, torch.zeros_like(parameter))
    case.assertEqual(inp.grad, torch.zeros_like(inp))


def single_batch_reference_fn(input: Any, parameters: Any, module: Any) -> Any:
    """What a module gives for a batch of one, without the batch."""
    return module(input.unsqueeze(0)).squeeze(0)


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
