"""cuDNN's graph interface: tensors and operations are described, the library proposes engines, the first that can be built is used.

`OperationGraph` collects descriptions, `OperationGraph.plan(...)` makes a `ExecutionPlan`, and `plan.run({uid: address, ...})` computes.
Callers cache plans, under a key with everything that the description depends on."""

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
from ...kernels.llvm_text import Function
from .. import nvidia
from ..cpu import jit, native_call

FLOAT, DOUBLE, INT32, BOOLEAN = (d.cudnn for d in (dt.float32, dt.float64, dt.int32, dt.bool_))
DATA_TYPES = {d: d.cudnn for d in (dt.float32, dt.float64, dt.float16, dt.bfloat16)}

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
    """cuDNN's handles of one thread."""

    def __init__(self) -> None:
        self.handles: dict[Any, list[Any]] = {}


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
    """Return the calling thread's handle for a device, set to its current stream."""
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
    """Raised when no engine of cuDNN computes a graph."""


def check(status: int, what: str) -> None:
    if status:
        details = ctypes.create_string_buffer(1024)
        library().cudnnGetLastErrorString(details, ctypes.c_size_t(1024))
        text = (
            f"cuDNN error: {library().cudnnGetErrorString(c_int(status)).decode()} ({what}; {details.value.decode()})"
        )
        raise Unsupported(text) if 3000 <= status < 4000 else nvidia.CudaError(text)


class Descriptor:
    """A description that the library keeps; destroyed with this object, which keeps those alive that it refers to."""

    __slots__ = ("pointer", "parts")

    def __init__(self, kind: str, *attributes: tuple[Any, ...], finalize: bool = True) -> None:
        self.pointer = c_void_p()
        self.parts: list[Any] = []
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

    def get(self, attribute: int, kind: str, limit: int) -> list[Any]:
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


class OperationGraph:
    """Operations on tensors that are described, not yet computed. Tensors are identified by numbers, their uids."""

    def __init__(self, where: Any, compute: int = FLOAT) -> None:
        self.where = where
        self.compute = compute
        self.operations: list[Descriptor] = []
        self.values: dict[int, Any] = {}  # numbers that are given by value, kept where the library reads them
        self._next = 1000

    def tensor(
        self, sizes: Sequence[int], strides: Sequence[int], kind: int, uid: int | None = None, alignment: int = 16
    ) -> Descriptor:
        """Add a tensor; without a uid one that exists only inside the computation."""
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
        """Add a float32 that is passed by value."""
        uid = self._next
        self._next += 1
        self.values[uid] = ctypes.c_float(value)
        ones = (1,) * rank
        attributes = (901, "data", FLOAT), (902, "int64", ones), (903, "int64", ones), (906, "int64", uid)
        return Descriptor("tensor", *attributes, (900, "int64", 16), (908, "bool", True))

    def add(self, kind: str, *attributes: tuple[Any, ...]) -> None:
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
        """Add the node y = mode(x, b, t) to the graph."""
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
        """Add the node c = a @ b to the graph."""
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
        """Add the node y = sum (mode 0) or maximum (3) of x over the dimensions that have size one in y."""
        how = Descriptor("reduction", (1600, "reduction", mode), (1601, "data", self.compute))
        self.add("reduction_operation", (1610, "descriptor", x), (1611, "descriptor", y), (1612, "descriptor", how))
        return y

    def reshape(self, y: Descriptor, x: Descriptor) -> Descriptor:
        """Add the node y = x with other sizes and strides."""
        self.add("reshape_operation", (2200, "descriptor", x), (2201, "descriptor", y))
        return y

    def plan(
        self, exact: bool = False, deterministic: bool = False, trial: Mapping[int, int] | None = None, limit: int = 10
    ) -> ExecutionPlan:
        """Return the first engine that can be built of those that the library recommends; with addresses for a trial, the fastest. `exact`
        refuses those that round float32 for tensor cores."""
        where = handle(self.where)
        graph = Descriptor("graph", (800, "handle", where.value), (801, "descriptor", self.operations))
        reason = "no engine is left"
        found: list[ExecutionPlan] = []
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
                    found.append(ExecutionPlan(self, config, where))
                except (Unsupported, nvidia.CudaError) as error:
                    reason = str(error)
                    continue
                if trial is None or len(found) >= limit:
                    break
        if not found:
            raise Unsupported(reason)
        return found[0] if trial is None or len(found) == 1 else _fastest(found, trial)


def _configurations(heuristics: Descriptor) -> list[Descriptor]:
    """Return the recommended engines, best first. The library fills in descriptors that it is given."""
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


# The words of a plan: functions of the library, their arguments, and the place of the result.
_CREATE, _SET, _FINALIZE, _EXECUTE, _DESTROY, _HANDLE, _PLAN, _COUNT, _UIDS, _PLACES, _SPACE, _PACK, _STATUS = range(13)


@functools.cache
def _runner() -> Any:
    """Return a function (address of a plan's words) that computes it."""
    if not jit.available() or not native_call.supported():
        return _through_ctypes
    return jit.support_function(_run(), signature="p", brief=True)


def _run() -> Function:
    """Return the function that makes, uses and destroys a descriptor of addresses; the first call that fails ends it."""
    f = Function("define void @cudnn_run(ptr %table)")
    w = [f.item("%table", i, "ptr") for i in range(_SPACE)]
    pack, space, status = (f.place("%table", i) for i in (_PACK, _SPACE, _STATUS))

    def keep(result: str) -> None:
        f.write("i64", f.new(f"zext i32 {result} to i64"), status)

    made = f.call("i32", w[_CREATE], "i32 16", f"ptr {pack}")
    keep(made)
    with f.when(f.compare("ne", "i32", made, 0)):
        f.ret()
    d = f.read("ptr", pack)
    count = f.new(f"ptrtoint ptr {w[_COUNT]} to i64")
    wrong = f.call("i32", w[_SET], f"ptr {d}", "i32 1000", "i32 3", f"i64 {count}", f"ptr {w[_UIDS]}")
    for answer in (
        f.call("i32", w[_SET], f"ptr {d}", "i32 1001", "i32 6", f"i64 {count}", f"ptr {w[_PLACES]}"),
        f.call("i32", w[_SET], f"ptr {d}", "i32 1003", "i32 6", "i64 1", f"ptr {space}"),
        f.call("i32", w[_FINALIZE], f"ptr {d}"),
    ):
        wrong = f.new(f"or i32 {wrong}, {answer}")
    keep(wrong)
    with f.when(f.compare("eq", "i32", wrong, 0)):
        keep(f.call("i32", w[_EXECUTE], f"ptr {w[_HANDLE]}", f"ptr {w[_PLAN]}", f"ptr {d}"))
    f.call("i32", w[_DESTROY], f"ptr {d}")
    return f


def _through_ctypes(table: int) -> None:
    words = (ctypes.c_uint64 * (_STATUS + 1)).from_address(table)
    count = words[_COUNT]
    pack = Descriptor(
        "pack",
        (1000, "int64", list((c_int64 * count).from_address(words[_UIDS]))),
        (1001, "address", list((ctypes.c_uint64 * count).from_address(words[_PLACES]))),
        (1003, "address", words[_SPACE]),
    )
    words[_STATUS] = library().cudnnBackendExecute(words[_HANDLE], words[_PLAN], pack.pointer)


class ExecutionPlan:
    """A computation that is ready to run."""

    __slots__ = ("plan", "nbytes", "where", "graph", "order", "uids", "places", "words", "table", "call", "handle")

    def __init__(self, graph: OperationGraph, config: Descriptor, where: c_void_p) -> None:
        self.plan = Descriptor("plan", (400, "handle", where.value), (401, "descriptor", config))
        self.nbytes = self.plan.get(402, "int64", 1)[0]
        self.where = graph.where
        self.graph = graph  # numbers that are passed by value are in it
        self.order: list[int] = []
        self.handle: Any = None
        self.call = _runner()

    def _arrange(self, order: list[int]) -> None:
        """Set the order of uids in which tensors will be given, followed by the numbers."""
        values = self.graph.values
        count = len(order) + len(values)
        self.order = order
        self.uids = (c_int64 * count)(*order, *values)
        self.places = (ctypes.c_uint64 * count)(*[0] * len(order), *[ctypes.addressof(v) for v in values.values()])
        names = ("CreateDescriptor", "SetAttribute", "Finalize", "Execute", "DestroyDescriptor")
        functions = [ctypes.cast(getattr(library(), f"cudnnBackend{name}"), c_void_p).value or 0 for name in names]
        self.words = (ctypes.c_uint64 * (_STATUS + 1))(
            *functions,
            0,
            self.plan.pointer.value or 0,
            count,
            ctypes.addressof(self.uids),
            ctypes.addressof(self.places),
        )
        self.table = ctypes.addressof(self.words)

    def run(self, addresses: Mapping[int, int]) -> None:
        """Compute, with the tensors that have uids at these addresses, given in the same order each time."""
        if not self.order:
            self._arrange(list(addresses))
        self.run_at(*addresses.values())

    def run_at(self, *addresses: int) -> None:
        """Compute once more, with the tensors at these addresses, in the order of the first call."""
        where, words = handle(self.where), self.words
        if where is not self.handle:
            self.handle, words[_HANDLE] = where, where.value or 0
        self.places[: len(addresses)] = list(addresses)
        if self.nbytes:
            space = nvidia.workspace(self.nbytes, self.where)  # goes back to the allocator when this returns
            words[_SPACE] = space.ptr
        self.call(self.table)
        if words[_STATUS]:
            check(words[_STATUS], "execute")


def _fastest(plans: list[ExecutionPlan], addresses: Mapping[int, int]) -> ExecutionPlan:
    """Return the plan that takes the shortest time on these tensors."""
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
