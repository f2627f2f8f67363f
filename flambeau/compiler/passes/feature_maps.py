"""What steps do with pictures: numbers for (images, channels, pixels). Recorded steps find them in that order. The same can be done with
pictures whose channels lie last, (images, pixels, channels); this says by which native calls.

A `Unit` is such a step (or several that belong together). It knows which of its operands are pictures, and gives itself anew with
some of them in the other layout."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...backends import compiled
from ...backends.cpu import jit
from ...backends.cpu.onednn.conv import Described
from ...core.device import cpu
from ...core.dtype import dtype
from ...core.tensor import contiguous_strides
from ...expr.node import arg
from ...graph.loops import Loop, Place
from ...graph.sharing import renamed
from ...kernels import geometry
from ...kernels import loops as loop_kernels
from ...kernels.library import batch_norm, pool
from ...kernels.reduction import ARG_COMBINES
from ...ops.nn.batch_norm import chunks_of
from ..record.planning import emitted, loop_at
from ..record.steps import Graph, Launch, Ref, Relaid, new_buffer
from .convolutions import as_gradient

_PICTURES = ("x", "y", "dx", "dy")  # of a convolution's tensors


class Picture(NamedTuple):
    """How many images, channels of each, and pixels of each channel there are, and of what numbers."""

    images: int
    channels: int
    pixels: int
    dtype: dtype

    @property
    def bytes(self) -> int:
        return self.images * self.channels * self.pixels * self.dtype.itemsize

    def strides(self, last: bool = False) -> tuple[int, int, int]:
        one = (1, self.channels) if last else (self.pixels, 1)
        return (self.channels * self.pixels, *one)

    def axes(self, size: int, stride: int) -> list[tuple[int, int]] | None:
        """A dimension of a loop that walks over this by a stride: which of images (0), channels (1) and pixels (2), and how many of each,
        outermost first. None if it goes across them."""
        steps, sizes = self.strides(), self[:3]
        if stride not in steps:
            return None
        found: list[tuple[int, int]] = []
        axis = max(i for i in range(3) if steps[i] == stride)
        while size > 1:
            whole = sizes[axis]
            if size <= whole and (axis != 2 or size == whole):
                return [(axis, size), *found]
            if size % whole or axis == 0:
                return None
            found.insert(0, (axis, whole))
            size, axis = size // whole, axis - 1
        return found


class Unit:
    """Steps that do one thing with pictures. `pictures` are those that may lie either way, by buffer; where it `joins` them, all must lie
    the same way."""

    joins = True

    def __init__(self, at: int, steps: list[Launch], pictures: dict[int, Picture]):
        self.at, self.steps, self.pictures = at, steps, pictures

    @property
    def step(self) -> Launch:
        return self.steps[0]

    def relaid(self, graph: Graph, last: dict[int, int]) -> list[Launch] | None:
        """The same with the channels of some pictures last; `last` has the buffers that these are in then. None if there is no such
        call."""
        raise NotImplementedError

    def _beside(self, launch: Launch, last: dict[int, int]) -> list[Launch]:
        """A call whose result is to be compared with what was recorded."""
        launch.relaid = Relaid(tuple(self.steps), {b: (last[b], p) for b, p in self.pictures.items() if b in last})
        return [launch]


class Convolution(Unit):
    """A convolution or its gradients, through oneDNN, which takes each picture as it lies."""

    joins = False

    def __init__(self, at: int, steps: list[Launch], told: Described, places: dict[str, Any], run: Launch):
        shapes = {n: told.tensors[n] for n in _PICTURES if n in told.tensors}
        usual = {n: shape for n, (shape, strides) in shapes.items() if strides == contiguous_strides(shape)}
        self.named = {n: places[n].buffer for n in usual if type(places[n]) is Ref and places[n].offset == 0}
        pictures = {
            b: Picture(usual[n][0], usual[n][1], math.prod(usual[n][2:]), told.dtype) for n, b in self.named.items()
        }
        super().__init__(at, steps, pictures)
        self.told, self.places, self.run = told, places, run

    def relaid(self, graph: Graph, last: dict[int, int]) -> list[Launch] | None:
        names = [n for n, b in self.named.items() if b in last]
        told = self.told.lying(names)
        plan = told.plan()
        if plan is None or plan.before or plan.after:
            return None
        places = {**self.places, **{n: Ref(last[self.named[n]], 0) for n in names}}
        arguments = [plan.address, *(places[n] for n in plan.described.tensors)]
        arguments += [None] * (len(self.run.signature) - len(arguments))
        return self._beside(Launch(self.run.name, self.run.address, self.run.signature, arguments, plan), last)


class Kernel(Unit):
    """A kernel of the library that has a counterpart for channels that lie last."""

    def __init__(self, at: int, step: Launch, names: tuple[str, ...], shapes: dict[str, Picture]):
        self.given = dict(zip(jit.facts[step.address].parameters, step.arguments))
        places = {n: self.given.get(n) for n in names}
        self.named = {n: p.buffer for n, p in places.items() if type(p) is Ref and p.offset == 0}
        super().__init__(at, [step], {b: shapes[n] for n, b in self.named.items()})

    def other(self, graph: Graph) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The counterpart, the kinds of its operands and the operands by name, and its constants."""
        raise NotImplementedError

    def relaid(self, graph: Graph, last: dict[int, int]) -> list[Launch] | None:
        if not all(b in last for b in self.pictures):
            return None
        kernel, kinds, given, constants = self.other(graph)
        given.update({n: Ref(last[b], 0) for n, b in self.named.items()})
        function = kernel.native(*(kinds[n] for n in kernel.kernel.positional), **constants)
        address = jit.address_of(function)
        arguments = [given[n] for n in jit.facts[address].parameters]
        return self._beside(Launch(self.step.name, address, jit.signatures[address], arguments), last)


class Norm(Kernel):
    """A batch norm that trains or evaluates, or its gradients."""

    def __init__(self, at: int, step: Launch, kinds: dict[str, Any], training: dict[str, Any]):
        given = dict(zip(jit.facts[step.address].parameters, step.arguments))
        shape = (given["batch"], given["channels"], given["space"])
        pictures = {n: Picture(*shape, kinds[n]) for n in ("out", "x", "grad_x", "grad") if kinds.get(n) is not None}
        super().__init__(at, step, tuple(pictures), pictures)
        self.kinds, self.training, self.rows = kinds, training, shape[0] * shape[2]

    def other(self, graph: Graph) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
        kept = self.kinds["mean"] if "mean" in self.kinds else self.kinds["rstd"]
        channels, chunks = self.given["channels"], chunks_of(self.rows)
        made = {"partial": 2 * chunks, "factors": 3}
        kinds = {**self.kinds, "rows": int, "chunks": int, **dict.fromkeys(made, kept)}
        kernel = _COLUMNS[jit.facts[self.step.address].name]
        wanted = {
            n: new_buffer(graph, made[n] * channels * kept.itemsize) for n in made if n in kernel.kernel.positional
        }
        return kernel, kinds, {**self.given, "rows": self.rows, "chunks": chunks, **wanted}, self.training


_COLUMNS: dict[str, Any] = {
    "normalise_planes": batch_norm.normalise_columns,
    "apply_planes": batch_norm.apply_columns,
    "backward_planes": batch_norm.backward_columns,
}


class Pool(Kernel):
    """Max pooling with small windows, or its gradient."""

    def __init__(self, at: int, step: Launch, kinds: dict[str, Any], window: dict[str, Any], channels: int):
        given = dict(zip(jit.facts[step.address].parameters, step.arguments))
        images = given["planes"] // channels
        inside, outside = given["h"] * given["w"], given["oh"] * given["ow"]
        pixels = {"x": inside, "grad_in": inside, "out": outside, "grad": outside, "codes": outside}
        pictures = {n: Picture(images, channels, p, kinds[n]) for n, p in pixels.items() if kinds.get(n) is not None}
        super().__init__(at, step, tuple(pictures), pictures)
        self.kinds, self.window, self.batch, self.channels = kinds, window, images, channels

    def other(self, graph: Graph) -> tuple[Any, dict[str, Any], dict[str, Any], dict[str, Any]]:
        forward = jit.facts[self.step.address].name == "max_pool_rows"
        kernel: Any = pool.max_pool_channels if forward else pool.max_pool_channels_backward
        further = {
            "batch": self.batch,
            "channels": self.channels,
            **{n: self.window[n] for n in ("kh", "kw", "sh", "sw")},
        }
        return kernel, {**self.kinds, **dict.fromkeys(further, int)}, {**self.given, **further}, {}


_POOLS = {"max_pool_rows": ("x", "out", "codes"), "max_pool_rows_backward": ("grad_in", "grad", "codes")}


class Elements(Unit):
    """A loop over the elements of pictures, and of whatever is spread over them."""

    def __init__(self, at: int, loop: Loop, step: Launch, known: dict[int, Picture]):
        self.loop = loop
        self.places = [p for p in [*loop.results, *(p for p, _ in loop.reads)] if isinstance(p, Place)]
        super().__init__(at, [step], {p.buffer: known[p.buffer] for p in self.places if p.buffer in known})

    def relaid(self, graph: Graph, last: dict[int, int]) -> list[Launch] | None:
        dense = [p for p in self.places if p.strides != (0,)]
        plain = all(p.strides == (1,) and p.start == 0 and p.buffer in last for p in dense)
        if plain and self.step.call is not None:  # one element after the other, either way
            same = renamed(self.step.call, last).steps or []
            return self._beside(same[0], last)
        split = _Split.of(self.loop.sizes, self.places, self.pictures, last)
        if split is None:
            return None
        moved = {p: split.moved(p, self.pictures, last) for p in self.places}
        if None in moved.values():
            return None
        results = {moved[p]: value for p, value in self.loop.results.items()}
        reads = [(moved[p] if isinstance(p, Place) else p, d) for p, d in self.loop.reads]
        return self._beside(emitted(graph, Loop(split.sizes, reads, results, self.loop.parts, cpu)), last)


class Reduction(Unit):
    """Sums over pixels, channels or images."""

    def __init__(self, at: int, step: Launch, known: dict[int, Picture]):
        self.reduction, _ = compiled.reductions[step.address]
        first, self.out, *given = step.arguments
        numbers = struct.unpack(f"{len(first) // 8}q", first)
        kept, total = self.reduction.kept_rank, self.reduction.kept_rank + self.reduction.reduced_rank
        self.sizes, self.out_strides, rest = numbers[:total], numbers[total : total + kept], numbers[total + kept :]
        strides = iter([rest[total * k : total * (k + 1)] for k in range(len(rest) // total)])
        self.given = [
            Place(a.buffer, a.offset, next(strides)) if k in "cbs" else a for a, k in zip(given, self.reduction.kinds)
        ]
        self.places = [p for p in self.given if isinstance(p, Place)]
        super().__init__(at, [step], {p.buffer: known[p.buffer] for p in self.places if p.buffer in known})

    def relaid(self, graph: Graph, last: dict[int, int]) -> list[Launch] | None:
        split = _Split.of(self.sizes, self.places, self.pictures, last)
        if split is None:
            return None
        moved = {p: split.moved(p, self.pictures, last) for p in self.places}
        if None in moved.values():
            return None
        kept = self.reduction.kept_rank
        spread = split.spread((*self.out_strides, *(0,) * self.reduction.reduced_rank))
        reduced = [i for i, of in enumerate(split.of_dimension) if of >= kept]
        plan = geometry.plan_reduction(split.sizes, [spread, *(moved[p].strides for p in self.places)], reduced)
        r, kinds = self.reduction, iter(plan.kinds)
        letters = "".join(next(kinds) if k in "cbs" else k for k in r.kinds)
        function = compiled.reduce_kernel(
            r.map_root, r.combine, r.final, r.in_dtypes, r.out_dtype, r.acc_dtype, plan.kept_rank, plan.reduced_rank,
            plan.inner, letters,
        )  # fmt: skip
        address = jit.address_of(function)
        given = [Ref(*moved[p][:2]) if isinstance(p, Place) else p for p in self.given]
        arguments = [array("q", plan.geometry).tobytes(), self.out, *given]
        return self._beside(Launch(self.step.name, address, jit.signatures[address], arguments), last)


class _Split:
    """The dimensions of a loop, taken apart into images, channels and pixels."""

    def __init__(self, sizes: tuple[int, ...], axes: list[list[tuple[int, int]]]):
        self.axes = [axis for row in axes for axis, _ in row]
        self.sizes = tuple(n for row in axes for _, n in row)
        self.of_dimension = [d for d, row in enumerate(axes) for _ in row]
        self._inside = [math.prod(n for _, n in row[k + 1 :]) for row in axes for k in range(len(row))]

    @classmethod
    def of(cls, sizes: tuple[int, ...], places: list[Any], pictures: dict[int, Picture], last: dict[int, int]) -> Any:
        """As the first picture whose channels will be last has them; None if its elements lie otherwise."""
        for p in places:
            if p.buffer in last and p.buffer in pictures:
                axes = [pictures[p.buffer].axes(n, s) for n, s in zip(sizes, p.strides)]
                if any(row is None for row in axes):
                    return None
                found = cls(sizes, axes)  # type: ignore[arg-type]
                return found if len(set(found.axes)) == len(found.axes) else None
        return None

    def spread(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """The strides of an operand along the parts of dimensions."""
        return tuple(strides[d] * inside for d, inside in zip(self.of_dimension, self._inside))

    def moved(self, place: Any, pictures: dict[int, Picture], last: dict[int, int]) -> Any:
        """Where an operand is and how it is walked over, afterwards; None if that cannot be said."""
        buffer, offset, strides = place.buffer, place.start, self.spread(place.strides)
        if buffer not in last:
            return Place(buffer, offset, strides)
        picture = pictures[buffer]
        before, after = picture.strides(), picture.strides(last=True)
        if strides != tuple(before[axis] for axis in self.axes):
            return None
        image, rest = divmod(offset // picture.dtype.itemsize, before[0])
        channel, pixel = divmod(rest, picture.pixels)
        if pixel or offset % picture.dtype.itemsize:
            return None
        start = image * after[0] + channel * after[1]
        return Place(last[buffer], start * picture.dtype.itemsize, tuple(after[axis] for axis in self.axes))


# -- finding them -------------------------------------------------------------------------------------------------------


class Finder:
    """The units of a graph, in order."""

    def __init__(self, graph: Graph):
        self.graph, self.known = graph, dict[int, Picture]()
        self._bad: set[int] = set()
        self._made = {jit.address_of(f): told for f, told in loop_kernels.made.items()}
        self._places = [(i, s) for i, s in enumerate(graph.steps) if isinstance(s, Launch)]
        self._loops = {i: loop for i, s in self._places if (loop := loop_at(s)) is not None}

    def units(self) -> list[Unit]:
        found: list[Unit] = [*self._convolutions(), *self._norms()]
        for unit in found:
            self._learn(unit.pictures)
        count = -1
        while count != len(self.known):  # one tells of the next
            count = len(self.known)
            for unit in self._pools():
                self._learn(unit.pictures)
            for loop in self._loops.values():
                self._learn_from(loop)
        for buffer in self._bad:
            self.known.pop(buffer, None)
        self.known = {b: p for b, p in self.known.items() if p.channels > 1 and p.pixels > 1}
        found += [*self._pools(), *self._elements()]
        taken = {id(s) for unit in found if isinstance(unit, Convolution) for s in unit.steps}
        kept = [u for u in found if isinstance(u, Convolution) or id(u.step) not in taken]
        for unit in kept:
            unit.pictures = {b: p for b, p in unit.pictures.items() if self.known.get(b) == p}
            if not isinstance(unit, (Elements, Reduction)):
                unit.named = {n: b for n, b in unit.named.items() if b in unit.pictures}  # type: ignore[attr-defined]
        whole = [u for u in kept if not isinstance(u, Kernel) or len(u.pictures) == len(set(_refs_of(u)))]
        return sorted((u for u in whole if u.pictures), key=lambda u: u.at)

    def _learn(self, pictures: dict[int, Picture]) -> None:
        for buffer, picture in pictures.items():
            held = self.graph.buffers[buffer]
            if held.source != "new" or held.size < picture.bytes or self.known.get(buffer, picture) != picture:
                self._bad.add(buffer)
            else:
                self.known[buffer] = picture

    def _learn_from(self, loop: Loop) -> None:
        """A loop over as many elements as a picture has: its other operands are pictures, too."""
        places = [*loop.reads, *((p, d) for p, (_, d) in loop.results.items())]
        dense = contiguous_strides(loop.sizes)
        plain = [(p.buffer, d) for p, d in places if isinstance(p, Place) and p.strides == dense and p.start == 0]
        shape = next((self.known[b][:3] for b, _ in plain if b in self.known), None)
        if shape is not None and math.prod(shape) == math.prod(loop.sizes):
            self._learn({b: Picture(*shape, d) for b, d in plain if self.graph.buffers[b].source == "new"})

    def _convolutions(self) -> Iterator[Convolution]:
        steps = self.graph.steps
        for i, step in self._places:
            product = as_gradient(steps[i : i + 3])
            if product is not None:
                yield Convolution(i, steps[i : i + 3], *product, steps[i + 2])
                continue
            told = getattr(step.plan, "described", None)
            if type(told) is not Described or told.kind not in ("forward", "backward"):
                continue
            if len(next(iter(told.tensors.values()))[0]) != 4:
                continue
            first, end = i - len(step.plan.before), i + 1 + len(step.plan.after)
            if first >= 0 and all(isinstance(s, Launch) for s in steps[first:end]):
                yield Convolution(first, steps[first:end], told, dict(zip(told.tensors, step.arguments[1:])), step)

    def _norms(self) -> Iterator[Norm]:
        for i, step in self._places:
            known = jit.facts.get(step.address)
            if known is not None and known.name in _COLUMNS and step.address in self._made:
                _, kinds, constants = self._made[step.address]
                yield Norm(i, step, kinds, constants)

    def _pools(self) -> Iterator[Pool]:
        for i, step in self._places:
            known = jit.facts.get(step.address)
            if known is None or known.name not in _POOLS or step.address not in self._made:
                continue
            given = dict(zip(known.parameters, step.arguments))
            sides = [
                self.known[given[n].buffer] for n in _POOLS[known.name] if n in given and given[n].buffer in self.known
            ]
            if sides and given["planes"] % sides[0].channels == 0:
                _, kinds, constants = self._made[step.address]
                yield Pool(i, step, kinds, constants, sides[0].channels)

    def _elements(self) -> Iterator[Unit]:
        for i, step in self._places:
            if i in self._loops:
                yield Elements(i, self._loops[i], step, self.known)
            elif step.address in compiled.reductions and type(step.arguments[0]) is bytes:
                reduction, _ = compiled.reductions[step.address]
                if reduction.combine not in ARG_COMBINES and "z" not in reduction.kinds:
                    yield Reduction(i, step, self.known)


def _refs_of(unit: Kernel) -> Iterator[int]:
    """The buffers of all pictures of a kernel, also of those that may not lie otherwise."""
    names = _POOLS.get(jit.facts[unit.step.address].name, ("out", "x", "grad_x", "grad"))
    return (unit.given[n].buffer for n in names if type(unit.given.get(n)) is Ref)


def relaying(graph: Graph, buffer: int, to: int, picture: Picture, last: bool) -> Launch:
    """The copy of a picture to another buffer, in the other layout: with channels last, or as usual."""
    sizes = (picture.images, picture.channels, picture.pixels)
    read, written = Place(buffer, 0, picture.strides(not last)), Place(to, 0, picture.strides(last))
    loop = Loop(sizes, [(read, picture.dtype)], {written: (arg(0), picture.dtype)}, (), cpu)
    return emitted(graph, loop, "channels last" if last else "channels first")


__all__ = ["Convolution", "Elements", "Finder", "Kernel", "Norm", "Picture", "Pool", "Reduction", "Unit", "relaying"]
