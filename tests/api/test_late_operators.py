"""Operators that are imported when one of their names is first asked for: nobody can tell, except by the time an import takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from forked import Forked

import flambeau
from flambeau.ops import late_names

# Each is run in a process of its own, where no late operator has been imported.
PROGRAMS = {
    "import": "assert 'flambeau.ops.late' not in sys.modules; assert (torch.ones(3) + 1).sum() == 6; assert 'flambeau.ops.late' not in sys.modules",
    "function": "assert torch.softmax(torch.zeros(2), 0).tolist() == [0.5, 0.5]",
    "method": "assert torch.zeros(2).softmax(0).tolist() == [0.5, 0.5]",
    "method_of_class": "assert torch.Tensor.softmax(torch.zeros(2), 0).tolist() == [0.5, 0.5]",
    "in_place": "x = torch.full((2,), 3.7); x.round_(); assert x.tolist() == [4.0, 4.0]",
    "super": """
class Own(torch.Tensor):
    def softmax(self, dim):
        return super().softmax(dim) * 2
assert torch.zeros(2).as_subclass(Own).softmax(0).tolist() == [1.0, 1.0]""",
    "star": "from flambeau import *; assert softmax(zeros(2), 0).tolist() == [0.5, 0.5]",
    "from": "from flambeau import softmax; assert softmax(torch.zeros(2), 0).tolist() == [0.5, 0.5]",
    "dir": "assert 'softmax' in dir(torch) and 'softmax' in dir(torch.Tensor) and hasattr(torch, '_foreach_add')",
    "pickle": "import pickle; assert pickle.loads(b'cflambeau\\nsoftmax\\n.') is torch.softmax",
    "own_function": "torch.softmax = 1; torch.sort(torch.ones(2)); assert torch.softmax == 1",
    "own_method": "torch.Tensor.softmax = 1; torch.sort(torch.ones(2)); assert torch.ones(2).softmax == 1",
    "records": "from flambeau.ops import OPS; assert 'softmax' in OPS",
    "lookup": "from flambeau.ops.machinery.record import lookup; assert lookup('softmax').function is torch.softmax",
    "sparse": "assert torch.eye(2).to_sparse().add(torch.eye(2).to_sparse()).to_dense().tolist() == [[2, 0], [0, 2]]",
    "legacy_sparse": "assert torch.sparse.FloatTensor(2, 2).mul(2).to_dense().sum() == 0",
    "quantized": "assert torch.quantize_per_tensor(torch.ones(2), 0.5, 0, torch.quint8).dequantize().tolist() == [1, 1]",
    "named": "assert torch.ones(2, 3, names=('a', 'b')).softmax('b').names == ('a', 'b')",
    "batched": "assert torch.vmap(lambda x: x.softmax(0))(torch.zeros(3, 2)).shape == (3, 2)",
    "gradient": "x = torch.zeros(2, requires_grad=True); x.softmax(0)[0].backward(); assert x.grad.tolist() == [0.25, -0.25]",
    "autocast": "with torch.autocast('cpu'): assert torch.ones(2, 2).mm(torch.ones(2, 2)).softmax(0).dtype == torch.bfloat16",
    "function_mode": """
from flambeau.overrides import TorchFunctionMode
class See(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert function is torch.Tensor.softmax
        return 7
x = torch.zeros(2)
with See():
    assert x.softmax(0) == 7""",
    "compiled": """
f = torch.compile(lambda x: x.softmax(0).relu() + torch.sigmoid(x))
for _ in range(4):
    assert f(torch.zeros(2)).tolist() == [1.0, 1.0]""",
}  # fmt: skip


@pytest.fixture(scope="module")
def imported() -> Iterator[Forked]:
    with Forked("import sys\nimport flambeau as torch") as process:
        yield process


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_first_use(imported: Forked, name: str) -> None:
    done = imported.run(PROGRAMS[name])
    assert done.returncode == 0, done.stderr


def test_every_late_name_is_there() -> None:
    functions, methods = late_names()
    assert len(functions) > 200
    assert len(methods) > 100
    assert not [name for name in functions if not callable(getattr(flambeau, name))]
    assert not [name for name in methods if not callable(getattr(flambeau.Tensor, name))]
