"""cuDNN's graph interface: tensors and operations are described, the library proposes engines, the first that can be built is kept.

`Graph` collects descriptions, `Graph.plan(...)` makes a `Plan`, and `plan.run({uid: address, ...})` computes. Plans are kept by whoever
made them, under a key that says everything the description depends on."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int, c_int64, c_void_p
from typing import Any

from ...core import dtype as dt
from .. import nvidia

FLOAT, DOUBLE, HALF, INT32, BFLOAT16, BOOLEAN = 0, 1, 2, 4, 9, 11
DATA_TYPES = {dt.float32: FLOAT, dt.float64: DOUBLE, dt.float16: HALF, dt.bfloat16: BFLOAT16}

# cudnnBackendAttributeType_t, and how each is passed.
_C_TYPES = {
    "handle": (0, c_void_p), "data": (1, c_int), "bool": (2, ctypes.c_bool), "int64": (3, c_int64), "float": (4, ctypes.c_float),
    "double": (5, ctypes.c_double), "address": (6, c_void_p), "convolution": (7, c_int), "heuristic": (8, c_int),
    "numerical": (11, c_int), "pointwise": (14, c_int), "descriptor": (15, c_void_p), "reduction": (18, c_int),
}  # fmt: skip

# cudnnBackendDescriptorType_t
_KINDS = {
    "pointwise": 0, "convolution": 1, "engine": 2, "config": 3, "heuristics": 4, "plan": 5, "conv_forward": 10,
    "conv_weight": 11, "conv_input": 12, "pointwise_operation": 13, "graph": 15, "pack": 16, "tensor": 17, "matmul": 18,
    "matmul_operation": 19, "reduction": 21, "reduction_operation": 22, "reshape_operation": 31,
}  # fmt: skip

POINTWISE = {
    "add": 0, "mul": 1, "div": 6, "sub": 9, "exp": 13, "log": 15, "identity": 21, "ge": 303, "index": 501, "select": 601,
}  # fmt: skip
_HEURISTICS = (3, 2)  # mode A, then whatever works
_TENSOR_CORE, _DOWN_CONVERT, _NONDETERMINISTIC = 0, 1, 4
_NOTES = 10


class _Local(threading.local):
    """cuDNN's handles belong to one thread each."""

    def __init__(self) -> None:
        self.handles: dict[Any, list] = {}


_local = _Local()


@functools.cache
def library() -> Any:
    found = nvidia.library("cudnn")
    found.cudnnGetErrorString.restype = ctypes.c_char_p
    found.cudnnGetVersion.restype = ctypes.c_size_t
    found.cudnnBackendSetAttribute.argtypes = [c_void_p, c_int, c_int, c_int64, c_void_p]
    found.cudnnBackendExecute.argtypes = [c_void_p, c_void_p, c_void_p]
    return found


def version() -> int:
    return int(library().cudnnGetVersion())


def handle(where: Any) -> c_void_p:
    """This thread's handle for a device, set to its current stream."""
    stream = nvidia.current_stream(where)
    found = _local.handles.get(where)
    if found is None:
        made = c_void_p()
        check(library().cudnnCreate(byref(made)), "cudnnCreate")
        found = _local.handles[where] = [made, -1]
    if found[1] != stream:
        check(library().cudnnSetStream(found[0], c_void_p(stream)), "cudnnSetStream")
        found[1] = stream
    return found[0]


class Unsupported(RuntimeError):
    """No engine of cuDNN computes this graph."""


def check(status: int, what: str) -> None:
    if status:
        details = ctypes.create_string_buffer(1024)
        library().cudnnGetLastErrorString(details, ctypes.c_size_t(1024))
        text = (
            f"cuDNN error: {library().cudnnGetErrorString(c_int(status)).decode()} ({what}; {details.value.decode()})"
        )
        raise Unsupported(text) if 3000 <= status < 4000 else nvidia.CudaError(text)


class Descriptor:
    """A description that the library keeps; destroyed with this object, which holds on to those it refers to."""

    __slots__ = ("pointer", "parts")

    def __init__(self, kind: str, *attributes: tuple, finalize: bool = True) -> None:
        self.pointer = c_void_p()
        self.parts: list = []
        check(library().cudnnBackendCreateDescriptor(c_int(_KINDS[kind]), byref(self.pointer)), "create")
        for name, kind_of_value, values in attributes:
            self.set(name, kind_of_value, values)
        if finalize:
            self.finalize()

    def set(self, attribute: int, kind: str, values: Any) -> None:
        number, c_type = _C_TYPES[kind]
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        if kind == "descriptor":
            self.parts += values
            values = [v.pointer.value for v in values]
        array = (c_type * len(values))(*values)
        status = library().cudnnBackendSetAttribute(self.pointer, attribute, number, len(values), array)
        check(status, f"attribute {attribute}")

    def finalize(self) -> None:
        check(library().cudnnBackendFinalize(self.pointer), "finalize")

    def get(self, attribute: int, kind: str, limit: int) -> list:
        number, c_type = _C_TYPES[kind]
        array, count = (c_type * limit)(), c_int64()
        status = library().cudnnBackendGetAttribute(
            self.pointer, c_int(attribute), c_int(number), c_int64(limit), byref(count), array
        )
        check(status, f"attribute {attribute}")
        return list(array[: count.value])

    def __del__(self, finalizing: Any = sys.is_finalizing) -> None:
        if not finalizing() and self.pointer.value:  # later, the driver may be gone
            library().cudnnBackendDestroyDescriptor(self.pointer)
            self.pointer.value = None


class Graph:
    """Operations on tensors that are described, not yet computed. Tensors are known by numbers, their uids."""

    def __init__(self, where: Any, compute: int = FLOAT) -> None:
        self.where = where
        self.compute = compute
        self.operations: list[Descriptor] = []
        self.values: dict[int, Any] = {}  # numbers that are given by value, kept where the library reads them
        self._next = 1000

    def tensor(
        self, sizes: Sequence[int], strides: Sequence[int], kind: int, uid: int | None = None, alignment: int = 16
    ) -> Descriptor:
        """A tensor; without a uid one that exists only inside of the computation."""
        virtual = uid is None
        if uid is None:
            uid = self._next
            self._next += 1
        attributes = [
            (901, "data", kind), (902, "int64", sizes), (903, "int64", strides), (906, "int64", uid), (900, "int64", alignment),
        ]  # fmt: skip
        if virtual:
            attributes.append((907, "bool", True))
        return Descriptor("tensor", *attributes)

    def number(self, value: float, rank: int = 4) -> Descriptor:
        """A float32 that is given by value."""
        uid = self._next
        self._next += 1
        self.values[uid] = ctypes.c_float(value)
        ones = (1,) * rank
        attributes = (901, "data", FLOAT), (902, "int64", ones), (903, "int64", ones), (906, "int64", uid)
        return Descriptor("tensor", *attributes, (900, "int64", 16), (908, "bool", True))

    def add(self, kind: str, *attributes: tuple) -> None:
        self.operations.append(Descriptor(kind, *attributes))

    def pointwise(
        self,
        mode: str,
        y: Descriptor,
        x: Descriptor,
        b: Descriptor | None = None,
        t: Descriptor | None = None,
        axis: int = -1,
        compute: int | None = None,
    ) -> Descriptor:
        """y = mode(x, b, t)"""
        settings = [(0, "pointwise", POINTWISE[mode]), (1, "data", self.compute if compute is None else compute)]
        if axis >= 0:
            settings.append((9, "int64", axis))
        attributes = [
            (750, "descriptor", Descriptor("pointwise", *settings)),
            (751, "descriptor", x),
            (753, "descriptor", y),
        ]
        if b is not None:
            attributes.append((752, "descriptor", b))
        if t is not None:
            attributes.append((758, "descriptor", t))
        self.add("pointwise_operation", *attributes)
        return y

    def matmul(self, c: Descriptor, a: Descriptor, b: Descriptor) -> Descriptor:
        """c = a @ b"""
        how = Descriptor("matmul", (1500, "data", self.compute))
        self.add(
            "matmul_operation",
            (1520, "descriptor", a),
            (1521, "descriptor", b),
            (1522, "descriptor", c),
            (1523, "descriptor", how),
        )
        return c

    def reduction(self, mode: int, y: Descriptor, x: Descriptor) -> Descriptor:
        """y = sum (mode 0) or maximum (3) of x over the dimensions that y has shrunk to one."""
        how = Descriptor("reduction", (1600, "reduction", mode), (1601, "data", self.compute))
        self.add("reduction_operation", (1610, "descriptor", x), (1611, "descriptor", y), (1612, "descriptor", how))
        return y

    def reshape(self, y: Descriptor, x: Descriptor) -> Descriptor:
        """y = x seen in other sizes and strides"""
        self.add("reshape_operation", (2200, "descriptor", x), (2201, "descriptor", y))
        return y

    def plan(
        self, exact: bool = False, deterministic: bool = False, trial: Mapping[int, int] | None = None, limit: int = 10
    ) -> Plan:
        """The first engine that can be built of those that the library recommends; with addresses to try them on, the fastest.
        `exact` refuses those that round float32 for tensor cores."""
        where = handle(self.where)
        graph = Descriptor("graph", (800, "handle", where.value), (801, "descriptor", self.operations))
        reason = "no engine is left"
        found: list[Plan] = []
        for mode in _HEURISTICS:
            if found:
                break
            try:
                heuristics = Descriptor("heuristics", (201, "descriptor", graph), (200, "heuristic", mode))
                configs = _configurations(heuristics)
            except Unsupported as error:
                reason = str(error)
                continue
            for config in configs:
                if _unwanted(config, exact, deterministic):
                    continue
                try:
                    found.append(Plan(self, config, where))
                except (Unsupported, nvidia.CudaError) as error:
                    reason = str(error)
                    continue
                if trial is None or len(found) >= limit:
                    break
        if not found:
            raise Unsupported(reason)
        return found[0] if trial is None or len(found) == 1 else _fastest(found, trial)


def _configurations(heuristics: Descriptor) -> list[Descriptor]:
    """The engines that are recommended, best first. The library fills in descriptors that it is given."""
    number, _ = _C_TYPES["descriptor"]
    count = c_int64()
    status = library().cudnnBackendGetAttribute(
        heuristics.pointer, c_int(202), c_int(number), c_int64(0), byref(count), None
    )
    check(status, "the number of engines")
    made = [Descriptor("config", finalize=False) for _ in range(count.value)]
    array = (c_void_p * max(len(made), 1))(*[d.pointer.value for d in made])
    status = library().cudnnBackendGetAttribute(
        heuristics.pointer, c_int(202), c_int(number), c_int64(len(made)), byref(count), array
    )
    check(status, "the list of engines")
    for d in made:
        d.parts.append(heuristics)
    return made[: count.value]


def _unwanted(config: Descriptor, exact: bool, deterministic: bool) -> bool:
    if not exact and not deterministic:
        return False
    engine = Descriptor("engine", finalize=False)
    array, count = (c_void_p * 1)(engine.pointer.value), c_int64()
    status = library().cudnnBackendGetAttribute(config.pointer, c_int(300), c_int(15), c_int64(1), byref(count), array)
    check(status, "the engine")
    notes = engine.get(1303, "numerical", _NOTES)
    rounds = exact and (_TENSOR_CORE in notes or _DOWN_CONVERT in notes)
    return rounds or (deterministic and _NONDETERMINISTIC in notes)


_PACKS = 16  # sets of addresses that a plan remembers


class Plan:
    """A computation that is ready to run. Programs use the same memory again and again, so that the descriptors of addresses are
    kept, too."""

    __slots__ = ("plan", "nbytes", "where", "values", "graph", "packs")

    def __init__(self, graph: Graph, config: Descriptor, where: c_void_p) -> None:
        self.plan = Descriptor("plan", (400, "handle", where.value), (401, "descriptor", config))
        self.nbytes = self.plan.get(402, "int64", 1)[0]
        self.where = graph.where
        self.values = [ctypes.addressof(value) for value in graph.values.values()]
        self.graph = graph  # the addresses above point into it
        self.packs: dict[tuple, Descriptor] = {}

    def run(self, addresses: Mapping[int, int]) -> None:
        """Compute, with the tensors that have uids at these addresses."""
        where = handle(self.where)
        space = nvidia.workspace(self.nbytes, self.where) if self.nbytes else None
        places = (*addresses.values(), 0 if space is None else space.ptr)
        pack = self.packs.get(places)
        if pack is None:
            if len(self.packs) >= _PACKS:
                self.packs.clear()
            pack = self.packs[places] = Descriptor(
                "pack",
                (1000, "int64", [*addresses, *self.graph.values]),
                (1001, "address", [*places[:-1], *self.values]),
                (1003, "address", places[-1]),
            )
        status = library().cudnnBackendExecute(where, self.plan.pointer, pack.pointer)
        if status:
            check(status, "execute")


def _fastest(plans: list[Plan], addresses: Mapping[int, int]) -> Plan:
    """The plan that takes the shortest time on these tensors."""
    best, shortest = plans[0], float("inf")
    for plan in plans:
        try:
            plan.run(addresses)
            nvidia.backend().synchronize(plan.where)
            start = time.perf_counter()
            for _ in range(3):
                plan.run(addresses)
            nvidia.backend().synchronize(plan.where)
        except RuntimeError:
            continue  # some engines find out only now that they cannot do it
        spent = time.perf_counter() - start
        if spent < shortest:
            best, shortest = plan, spent
    return best
