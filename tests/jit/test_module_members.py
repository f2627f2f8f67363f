"""What a script can ask a module and its containers for: names, tensors and modules, in PyTorch's order."""

from __future__ import annotations

from typing import Any

from answers.programs import check_function


def members(L: Any) -> Any:  # noqa: N803
    class Inner(L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = L.nn.Parameter(L.arange(2.0))
            self.register_buffer("seen", L.arange(3.0))
            self.act = L.nn.ReLU()

        def forward(self, x):
            n = 0
            found = [x.sum()]
            said = [""]
            for name, b in self.named_buffers():
                said.append("buffer " + name)
                found.append(b.sum() * 3)
            for m in self.children():
                found.append(m(x).sum())
            for name, m in self.named_children():
                said.append("child " + name)
                found.append(m(x).sum())
            for name, m in self.named_modules():  # noqa: B007
                said.append("module " + name)
                n += 1
            for m in self.modules():  # noqa: B007
                n += 10
            return found, said, n

    class Outer(L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = L.nn.ModuleDict({"b": L.nn.ReLU(), "a": L.nn.Tanh()})
            self.row = L.nn.ModuleList([L.nn.ReLU(), L.nn.Sigmoid()])

        def forward(self, x):
            said = [""]
            found = [x]
            for name in self.table.keys():  # noqa: SIM118
                said.append(name)
            for layer in self.table.values():
                found.append(layer(x))
            for name, layer in self.table.items():
                said.append("item " + name)
                found.append(layer(x))
            for i, layer in enumerate(self.row):
                said.append(str(i))
                found.append(layer(x))
            for layer in self.row[1:]:
                found.append(layer(x))
            return found, said, len(self.table), len(self.row), "a" in self.table, "c" in self.table

    x = L.tensor([-1.0, 2.0])
    return L.jit.script(Inner())(x), L.jit.script(Outer())(x)


def test_members() -> None:
    check_function(members)
