"""Programs that are compiled by both libraries: each function gets `torch` (and F, nn) from its module's globals."""

# ruff: noqa
# mypy: ignore-errors
from typing import Dict, List, NamedTuple, Optional, Tuple


def addition(x):
    return x + 1


def countdown(x, y: int):
    z = x
    while y > 0:
        z = z + x
        y -= 1
    return z


def early_return(x):
    if x.sum() > 0:
        return x
    return -x


def skipping(x, n: int):
    out = torch.jit.annotate(List[torch.Tensor], [])
    for i in range(n):
        if i == 2:
            continue
        out.append(x * i)
    return torch.cat(out)


def optional(x: Optional[torch.Tensor]):
    if x is not None:
        y = x + 1
    else:
        y = torch.zeros(2, 3)
    return y


def dictionary(d: Dict[str, torch.Tensor]):
    s = d["a"]
    for k, v in d.items():
        s = s + v
    return s


def branches(x, flag: bool):
    a = 1
    if flag:
        a = 2
        b = x
    else:
        b = x * 2
    return a, b


def comprehension(x: List[int]):
    return [i * 2 for i in x]


def indexing(x, y):
    x[0] = y[0]
    x[:, 1:] = y[:, 1:]
    return x[..., None, 0], x[1:2, ::2]


def unpacking(x):
    a, b = x.split(2)
    v, i = x.max(dim=1)
    return a, b, v, i


def f_string(s: str, n: int):
    return f"{s} is {n}" + "!"


def return_in_loop(x, n: int):
    for i in range(n):
        if i > 3:
            return x
        x = x + 1
    return x * 2


def arithmetic(x: float, y: int):
    return x**y, y // 2, y / 2, x % 2, -x, not y > 2, y & 3


def assertion(x):
    assert x.dim() == 2, "two"
    return x.t()


def breaking(x, n: int):
    while True:
        n -= 1
        if n < 0:
            break
        x = x + n
    return x


def rows(x):
    for a in x:
        print(a)
    return len(x)


def pairs(x: List[Tuple[int, float]]):
    t = 0.0
    for i, f in x:
        t += i * f
    return t


def tuples(x, y: Tuple[int, str]):
    a, b = y
    return x[a], y[1], b


def type_comment(x):
    # type: (Tensor) -> Tuple[Tensor, int]
    return x.view(-1, 2), x.size(0)


def ternary(a: int, b: int):
    return max(a, b) if a > 0 and b > 0 else min(a, b)


def conversions(x):
    y = torch.zeros(2, 3, dtype=torch.float64)
    return y.to(x.dtype).to(torch.device("cpu"))


def nested_loops(x, n: int):
    r = x
    for i in range(0, n, 2):
        for j in range(i):
            r = r + j
            if j > 2:
                break
    return r


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.scale = 2.0
        self.n: int = 3

    def forward(self, x):
        x = torch.relu(self.fc(x)) * self.scale
        for i in range(self.n):
            x = x + i
        return x


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x):
        for i, l in enumerate(self.layers):
            x = l(x) + i
        return x


FUNCTIONS = [
    addition, countdown, early_return, skipping, optional, dictionary, branches, comprehension, indexing, unpacking, f_string,
    return_in_loop, arithmetic, assertion, breaking, rows, pairs, tuples, type_comment, ternary, conversions, nested_loops, Scaled, Listed,
]  # fmt: skip
