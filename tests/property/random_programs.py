"""Random programs run by Flambeau and by PyTorch side by side, compared after every statement.

A program is a list of lines (see `program_statements.py`). After each line both libraries must have raised the same type of
exception or none, and every live tensor must agree in value, dtype, shape, strides, offset, version, shared memory and autograd
state. Values that differ by rounding are then made equal, so that differences never pile up.

    python tests/property/random_programs.py 0 1000      # seeds; prints each difference with a minimised program
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from program_choices import COMMON, Choice
from program_statements import statement

TOLERANCE = {
    "float16": 2e-3,
    "bfloat16": 2e-2,
    "float32": 2e-6,
    "float64": 1e-12,
    "complex64": 4e-6,
    "complex128": 1e-12,
}
EMPTY_IGNORES = ("stride", "contiguous", "version")  # strides and changes of no element
# Mistakes that may be named before or after another one in the same call
EITHER_WAY = ("leaf Variable", "being modified inplace", "written-to tensor", "Found dtype", "functions with out=",
              "index is out of bounds for dimension with size 0", "without overflow")  # fmt: skip
MOST_ALIVE = 9
MOST_ELEMENTS = 3000
# What PyTorch refuses by chance: kernels that few dtypes have; and views it knows though nothing was recorded yet
UNSHARED = (
    "ComplexHalf",
    "Found dtype",
    "outputs with complex dtype",
    "This view is the output of a function that returns multiple views",
)


class Difference(AssertionError):
    """The two libraries disagree."""


class HalfDone(Exception):
    """PyTorch changed tensors before it raised: nothing to be compared with."""


class Side:
    """One library running a program."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.log: list[Any] = []
        self.names: dict[str, Any] = {"torch": library, "make": self.make, "log": self.log}

    def make(self, dtype: str, shape: tuple[int, ...], seed: int) -> Any:
        """A tensor of small numbers, the same in both libraries."""
        numbers = np.random.RandomState(seed)
        values = numbers.randint(-8, 9, shape) / 4
        if "int" in dtype:
            values = numbers.randint(0 if dtype == "uint8" else -4, 5, shape)
        elif "bool" in dtype:
            values = numbers.randint(0, 2, shape).astype(bool)
        elif "complex" in dtype:
            values = values + 1j * numbers.randint(-8, 9, shape) / 4
        flat = self.library.tensor(np.ravel(values).tolist(), dtype=getattr(self.library, dtype))
        return flat.reshape(shape).clone()

    def execute(self, line: str) -> str:
        """The name of the exception the line raised, or ""."""
        try:
            exec(line, self.names)
        except Exception as error:
            self.error = error
            return type(error).__name__.lstrip("_")
        return ""

    def tensors(self) -> dict[str, Any]:
        return {n: v for n, v in self.names.items() if isinstance(v, self.library.Tensor)}


def plain(t: Any) -> np.ndarray:
    """The tensor's values; exact integers of the bits for the dtypes NumPy lacks are not needed, float32 holds them all."""
    t = t.detach().resolve_conj().resolve_neg()
    return t.float().numpy() if str(t.dtype).endswith("bfloat16") else t.numpy()


FACTS: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda t: str(t.dtype).split(".")[1],
    "shape": lambda t: tuple(t.shape),
    "stride": lambda t: tuple(t.stride()),
    "offset": lambda t: t.storage_offset(),
    "contiguous": lambda t: t.is_contiguous(),
    "version": lambda t: t._version,
    "requires_grad": lambda t: t.requires_grad,
    "grad_fn": lambda t: t.grad_fn and type(t.grad_fn).__name__,
    "is_leaf": lambda t: t.is_leaf,
    "is_view": lambda t: t._is_view(),
    "retains_grad": lambda t: t.retains_grad,
    "output_nr": lambda t: t.output_nr,
    "memory": lambda t: t.untyped_storage().nbytes() if t.numel() else 0,
}


def facts(t: Any) -> dict[str, Any]:
    """What must agree exactly. Views that were overtaken by changes of their base raise when asked for their graph."""
    found: dict[str, Any] = {}
    for name, ask in FACTS.items():
        try:
            found[name] = ask(t)
        except RuntimeError:
            found[name] = "RuntimeError"
    return found


def sharing(tensors: dict[str, Any]) -> list[list[str]]:
    groups: dict[int, list[str]] = {}
    for name, t in tensors.items():
        if t.untyped_storage().nbytes():
            groups.setdefault(t.untyped_storage().data_ptr(), []).append(name)
    return sorted(groups.values())


def compare_values(where: str, ours: np.ndarray, theirs: np.ndarray, dtype: str) -> None:
    tolerance = TOLERANCE.get(dtype)
    if tolerance is None:
        agree = np.array_equal(ours, theirs)
    else:
        finite = theirs[np.isfinite(theirs)]
        scale = float(np.abs(finite).max()) if finite.size else 1.0
        agree = np.allclose(ours, theirs, 8 * tolerance, tolerance * max(scale, 1e-3), equal_nan=True)
    if not agree:
        raise Difference(f"{where}: value\n ours  {ours.tolist()}\n torch {theirs.tolist()}")


def compare_tensors(where: str, ours: Any, theirs: Any) -> None:
    mine, judge = facts(ours), facts(theirs)
    ignored = EMPTY_IGNORES if theirs.numel() == 0 else ()
    different = [key for key in judge if mine[key] != judge[key] and key not in ignored]
    if different:
        raise Difference("; ".join(f"{where}: {k} is {mine[k]!r}, torch has {judge[k]!r}" for k in different))
    a, b = plain(ours), plain(theirs)
    if a.tobytes() == b.tobytes():
        return
    compare_values(where, a, b, judge["dtype"])
    settle(ours, theirs)


def settle(ours: Any, theirs: Any) -> None:
    """Give our tensor PyTorch's last bits, behind autograd's back."""
    if str(theirs.dtype) == "torch.bfloat16":
        ours.detach()._array()[...] = theirs.detach().resolve_conj().view(type_of_bits(theirs)).numpy().view(np.uint16)
    elif not theirs.is_conj() and not theirs.is_neg():
        ours.detach().numpy()[...] = theirs.detach().numpy()


def type_of_bits(t: Any) -> Any:
    return sys.modules[type(t).__module__.split(".")[0]].int16


def compare_sides(ours: Side, theirs: Side) -> None:
    mine, judge = ours.tensors(), theirs.tensors()
    if list(mine) != list(judge):
        raise Difference(f"names {list(mine)}, torch has {list(judge)}")
    for name, t in judge.items():
        compare_tensors(name, mine[name], t)
        if facts(t)["is_leaf"] is not True and not t.retains_grad:
            continue
        if (mine[name].grad is None) != (t.grad is None):
            raise Difference(f"{name}.grad is {mine[name].grad}, torch has {t.grad}")
        if t.grad is not None:
            compare_gradients(f"{name}.grad", mine[name].grad, t.grad)
    if sharing(mine) != sharing(judge):
        raise Difference(f"memory shared {sharing(mine)}, torch has {sharing(judge)}")
    if ours.log != theirs.log:
        raise Difference(f"hooks called {ours.log}, torch has {theirs.log}")


def compare_gradients(where: str, ours: Any, theirs: Any) -> None:
    if ours.shape != theirs.shape or str(ours.dtype).split(".")[1] != str(theirs.dtype).split(".")[1]:
        raise Difference(f"{where}: {ours.shape} {ours.dtype}, torch has {theirs.shape} {theirs.dtype}")
    if theirs.requires_grad and not ours.requires_grad and theirs.numel():
        raise Difference(f"{where}: requires_grad is False, torch has True")
    dtype = str(theirs.dtype).split(".")[1]
    a, b = plain(ours), plain(theirs)
    if a.tobytes() != b.tobytes():
        compare_values(where, a, b, {"float32": "float16", "float64": "float32"}.get(dtype, dtype))
        settle(ours, theirs)


def step(ours: Side, theirs: Side, line: str) -> str:
    """Run a line in both; the exception it raised, or a Difference."""
    before = snapshot(theirs)
    expected, got = theirs.execute(line), ours.execute(line)
    name = line.split(" = ")[0]
    if expected and not got and any(word in str(theirs.error) for word in UNSHARED):
        raise HalfDone(expected)
    if expected and got and same_mistake(str(ours.error), str(theirs.error)):
        got = expected
    if got and expected != got and any(t.numel() == 0 for t in theirs.tensors().values()):
        raise HalfDone(got)  # PyTorch does not check everything where there is nothing to do
    if expected != got:
        said = {"ours": str(ours.error)[:300] if got else "-", "torch": str(theirs.error)[:300] if expected else "-"}
        raise Difference(f"raised {got or 'nothing'}, torch raises {expected or 'nothing'}: {said}")
    if any(str(t.dtype) == "torch.complex32" for t in theirs.tensors().values()):
        raise HalfDone("a dtype that Flambeau lacks")
    if any(t.requires_grad and not (t.is_floating_point() or t.is_complex()) for t in theirs.tensors().values()):
        raise HalfDone("PyTorch has lost its way")
    if expected and snapshot(theirs) != before:
        raise HalfDone(expected)
    compare_sides(ours, theirs)
    if name in theirs.names and repr_of(ours.names[name]) != repr_of(theirs.names[name]):
        raise Difference(f"repr\n ours  {repr_of(ours.names[name])}\n torch {repr_of(theirs.names[name])}")
    return got


def same_mistake(ours: str, theirs: str) -> bool:
    """Which of two mistakes in one call is named first is left open."""
    if all("can't be cast" in said for said in (ours, theirs)) or "Dimension out of range" in ours + theirs:
        return True
    return any(words in ours + theirs for words in EITHER_WAY)


def snapshot(side: Side) -> dict[str, Any]:
    return {n: (tuple(t.shape), t.stride(), t.requires_grad, plain(t).tobytes()) for n, t in side.tensors().items()}


def repr_of(value: Any) -> str:
    try:
        return repr(value).replace("flambeau.", "torch.")
    except RuntimeError:
        return "RuntimeError"


def run(lines: list[str], ours: Side, theirs: Side) -> None:
    """Run a given program; a Difference names the line."""
    for line in lines:
        try:
            step(ours, theirs, line)
        except Difference as difference:
            raise Difference(f"{line}\n  {difference}") from None
        except HalfDone:
            return


def generate(seed: int, ours: Side, theirs: Side) -> tuple[list[str], Difference | None]:
    """Invent and run the program of a seed. Returns its lines and the first difference."""
    choice = Choice(seed)
    length = choice.random.randrange(5, 31)
    lines: list[str] = []
    opening = [f"{choice.fresh()} = {choice.made(choice.shape(), d)}" for d in choice.random.sample(COMMON, 3)]
    opening += [f"{choice.fresh()} = {choice.made(choice.shape(), 'float32')}.requires_grad_()" for _ in range(2)]
    opening[0] += ".requires_grad_()" if choice.chance(0.2) else ""
    while len(lines) < length:
        choice.tensors = {n: t for n, t in theirs.tensors().items() if t.numel() <= MOST_ELEMENTS}
        if len(choice.tensors) > MOST_ALIVE:
            line = f"del {choice.among(list(choice.tensors)[:5])}"
        else:
            line = opening.pop(0) if opening else statement(choice)
        lines.append(line)
        try:
            step(ours, theirs, line)
        except Difference as difference:
            return lines, difference
        except HalfDone:
            break
        if ungoverned(theirs):
            break
    return lines, None


def ungoverned(side: Side) -> bool:
    """Numbers so large that rounding decides what follows, or tensors that grew."""
    for t in side.tensors().values():
        if t.numel() > MOST_ELEMENTS or (t.is_floating_point() and bool((t.detach().abs() > 1e6).any())):
            return True
    return False


def minimised(lines: list[str], difference: Difference, libraries: tuple[Any, Any]) -> list[str]:
    """Leave out lines as long as the last one still shows a difference of the same kind."""

    wanted = str(difference).strip()[:25]
    shorter = list(lines)
    for i in reversed(range(len(lines) - 1)):
        trial = shorter[:i] + shorter[i + 1 :]
        try:
            run(trial, Side(libraries[0]), Side(libraries[1]))
        except Difference as found:
            if str(found).split("\n  ", 1)[-1].strip()[:25] == wanted and str(found).startswith(trial[-1]):
                shorter = trial
    return shorter


def signature(line: str, difference: Difference) -> str:
    """Differences with the same signature most likely have one cause."""
    shown = line.split(" = ", 1)[-1] + str(difference)[:100]
    return re.sub(r"t\d+|[\d.\-\[\](), :]+|make|torch", " ", shown)[:70]


def main(first: int, last: int) -> None:
    import torch

    import flambeau

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = 0
    seen: set[str] = set()
    for seed in range(first, last):
        print(f"seed {seed}", file=sys.stderr)
        lines, difference = generate(seed, Side(flambeau), Side(torch))
        if difference is not None:
            found += 1
            if signature(lines[-1], difference) in seen:
                continue
            seen.add(signature(lines[-1], difference))
            short = minimised(lines, difference, (flambeau, torch))
            print(f"--- seed {seed}\n" + "\n".join(short) + f"\n  => {difference}", flush=True)
    print(f"{last - first} programs, {found} differences", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
