"""Pointwise kernels on NVIDIA GPUs: a thread takes several elements, neighbours as one access of up to 16 bytes.

A `Map` becomes one of three texts, compiled when first needed: a dense row; a strided layout whose rows are dense (or repeat one element),
`vector` neighbours at a time; any strided layout. Sizes and strides are passed by value; positions become offsets without division.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ..core.caching import remember
from .cuda_operands import Device, Layout, Operands, device_function, fits
from .cuda_values import PRELUDE, loaded, memory_type, stored, value_type
from .elementwise import Map, weight

BLOCK = 128
HEAVY = 60  # formulas at least this costly take fewer elements per thread: their text is long enough


class MapProgram:
    """The kernels of one formula with its dtypes and kinds."""

    def __init__(self, recipe: Map):
        self.recipe = recipe
        outs = len(recipe.out_dtypes)
        self.operands = Operands(recipe.in_dtypes, recipe.out_dtypes, recipe.kinds[outs:])
        self.pointer_kinds = dict(zip(self.operands.pointers, [k for k in recipe.kinds if k in "cbs"]))
        self.dense = recipe.rank == 1 and "s" not in recipe.kinds
        self.vector = self._vector() if "s" not in self.pointer_kinds.values() else 1
        self.unroll = self._unroll(self.vector)

    def _vector(self) -> int:
        widths = [self.operands.dtypes[p].itemsize for p, kind in self.pointer_kinds.items() if kind == "c"]
        vector = max(1, 16 // max(widths, default=4))
        return min(vector, 4) if weight(self.recipe.roots) >= HEAVY else vector

    def _unroll(self, vector: int) -> int:
        """Return how many groups a thread takes: one fills the memory's lines already; two if half-width elements take some computing."""
        return 2 if vector == 8 and 4 < weight(self.recipe.roots) < HEAVY else max(1, 4 // vector)

    @property
    def source(self) -> str:
        return self.dense_source() if self.dense else self.strided_source(self.vector, True)

    # --- text

    def _element(self) -> str:
        return device_function("element", self.recipe.roots, self.recipe.in_dtypes, self.recipe.out_dtypes)

    def dense_source(self) -> str:
        o, v = self.operands, self.vector
        return (
            PRELUDE
            + self._element()
            + f"""
extern "C" __global__ void __launch_bounds__({BLOCK}) map({", ".join(["i64 n", *o.parameters()])}) {{
  const i64 first = (i64)blockIdx.x * {BLOCK * v * self.unroll};
  const bool whole = first + {BLOCK * v * self.unroll} <= n{self._aligned()};
  {self._body(f"first + (i64)(u * {BLOCK} + threadIdx.x) * {v}", "n", v)}
}}
"""
        )

    def _aligned(self) -> str:
        """Return the text of a test that pointers are multiples of the bytes loaded at once."""
        dense = [(p, self.vector * self.operands.dtypes[p].itemsize) for p, k in self.pointer_kinds.items() if k == "c"]
        tests = [f" && ((unsigned long long){p} & {width - 1}) == 0" for p, width in dense if width > 1]
        return "".join(tests) if self.vector > 1 else ""

    def _body(self, place: str, end: str, v: int) -> str:
        """Return the text that loads, computes and stores `unroll` groups of v neighbours; group u begins at `place`, before `end`."""
        o, kinds = self.operands, self.pointer_kinds
        arrays, vectors, singles, before = [], [], [], []
        values = []
        for i, d in enumerate(o.in_dtypes):
            name, t = f"in{i}", value_type(d)
            if name not in kinds:
                before.append(f"const {t} x{i} = {o.passed(i)};")
                values.append(f"x{i}")
            elif kinds[name] == "b":
                before.append(f"const {t} x{i} = {loaded(f'{name}[0]', d)};")
                values.append(f"x{i}")
            else:
                arrays.append(f"fb_vec<{memory_type(d)}, {v}> x{i}[{self.unroll}];")
                vectors.append(f"x{i}[u] = *(const fb_vec<{memory_type(d)}, {v}>*)({name} + at);")
                singles.append(f"x{i}[u].at[v] = {name}[at + v];")
                values.append(loaded(f"x{i}[u].at[v]", d))
        arrays += [f"fb_vec<{memory_type(d)}, {v}> y{k}[{self.unroll}];" for k, d in enumerate(o.out_dtypes)]
        results = " ".join(f"{value_type(d)} r{k};" for k, d in enumerate(o.out_dtypes))
        call = f"element({', '.join([*values, *(f'r{k}' for k in range(len(o.out_dtypes)))])});"
        kept = " ".join(f"y{k}[u].at[v] = {stored(f'r{k}', d)};" for k, d in enumerate(o.out_dtypes))
        put = " ".join(f"*(fb_vec<{memory_type(d)}, {v}>*)(out{k} + at) = y{k}[u];" for k, d in enumerate(o.out_dtypes))
        put_single = " ".join(f"out{k}[at + v] = y{k}[u].at[v];" for k in range(len(o.out_dtypes)))
        groups = f"#pragma unroll\n  for (int u = 0; u < {self.unroll}; ++u)"
        each = f"#pragma unroll\n    for (int v = 0; v < {v}; ++v)"
        return f"""{" ".join(before)}
  {" ".join(arrays)}
  if (whole) {{
  {groups} {{ const i64 at = {place}; {" ".join(vectors)} }}
  }} else {{
  {groups} {{ const i64 at = {place};
    {each} if (at + v < {end}) {{ {" ".join(singles)} }} }}
  }}
  {groups} {{
    {each} {{ {results} {call} {kept} }}
  }}
  if (whole) {{
  {groups} {{ const i64 at = {place}; {put} }}
  }} else {{
  {groups} {{ const i64 at = {place};
    {each} if (at + v < {end}) {{ {put_single} }} }}
  }}"""

    def strided_source(self, v: int, narrow: bool) -> str:
        """Return the kernel for `groups` groups of v neighbours in the innermost dimension; with v > 1 every row is a whole number of groups."""
        o, layout = self.operands, self.layout(narrow)
        unroll = 4 if v == 1 else self._unroll(v)
        loads, values, calls = [], [], []
        arrays = []
        for i, d in enumerate(o.in_dtypes):
            name, t, m = f"in{i}", value_type(d), memory_type(d)
            if name not in self.pointer_kinds:
                arrays.append(f"const {t} x{i} = {o.passed(i)};")
                values.append(f"x{i}")
                continue
            wide = v if self.pointer_kinds[name] != "b" else 1
            arrays.append(f"fb_vec<{m}, {wide}> x{i}[{unroll}];")
            loads.append(f"fb_load(x{i}[u], {name} + {name}_at);")
            values.append(loaded(f"x{i}[u].at[{'v' if wide > 1 else '0'}]", d))
        for k, d in enumerate(o.out_dtypes):
            arrays.append(f"fb_vec<{memory_type(d)}, {v}> y{k};")
            calls.append(f"fb_store(out{k} + out{k}_at, y{k});")
        results = " ".join(f"{value_type(d)} r{k};" for k, d in enumerate(o.out_dtypes))
        call = f"element({', '.join([*values, *(f'r{k}' for k in range(len(o.out_dtypes)))])});"
        kept = " ".join(f"y{k}.at[v] = {stored(f'r{k}', d)};" for k, d in enumerate(o.out_dtypes))
        outs, ins = [p for p in o.pointers if p[0] == "o"], [p for p in o.pointers if p[0] == "i"]
        parameters = ", ".join(["const geometry g", "i64 groups", *o.parameters()])
        return (
            PRELUDE
            + self._element()
            + f"""
struct geometry {{ {layout.fields()} }};
extern "C" __global__ void __launch_bounds__({BLOCK}) map_strided({parameters}) {{
  const i64 first = (i64)blockIdx.x * {BLOCK * unroll} + threadIdx.x;
  {" ".join(arrays)}
  #pragma unroll
  for (int u = 0; u < {unroll}; ++u) {{
    const i64 group = first + u * {BLOCK};
    if (group < groups) {{ {layout.locate("group", ins) if ins else ""} {" ".join(loads)} }}
  }}
  #pragma unroll
  for (int u = 0; u < {unroll}; ++u) {{
    const i64 group = first + u * {BLOCK};
    if (group < groups) {{
      #pragma unroll
      for (int v = 0; v < {v}; ++v) {{ {results} {call} {kept} }}
      {layout.locate("group", outs)}
      {" ".join(calls)}
    }}
  }}
}}
"""
        )

    def layout(self, narrow: bool) -> Layout:
        return Layout("dim", self.operands.pointers, self.recipe.rank, narrow)

    # --- launches

    def bind(self, device: Device) -> Callable[..., None]:
        return self._bind_dense(device) if self.dense else self._bind_strided(device)

    def _bind_dense(self, device: Device) -> Callable[..., None]:
        kinds = ("q", *self.operands.kinds())
        module = device.load(self.dense_source())
        function = module.function("map", kinds)
        each = BLOCK * self.vector * self.unroll

        def run(n: int, *operands: Any) -> None:
            function(-(-n // each), BLOCK, n, *operands)

        # A plan, whose size does not change, calls this instead of `run`.
        run.fixed = lambda n: module.fixed("map", kinds, -(-n // each), BLOCK, (n,))  # type: ignore[attr-defined]
        return run

    def _bind_strided(self, device: Device) -> Callable[..., None]:
        functions: dict[tuple[int, bool], Any] = {}
        modules: dict[tuple[int, bool], tuple[Any, ...]] = {}
        plans: dict[bytes, tuple[Any, ...]] = {}

        def plan(geometry: bytes) -> tuple[Any, ...]:
            sizes, strides = self.unpacked(geometry)
            narrow = fits(sizes, strides)
            v = self.vector_for(sizes, strides)
            layout = self.layout(narrow)
            if v > 1:
                sizes = (*sizes[:-1], sizes[-1] // v)
                strides = [(*s[:-1], s[-1] * v) for s in strides]
            groups = 1
            for n in sizes:
                groups *= n
            packed = layout.pack(sizes, strides)
            if (v, narrow) not in functions:
                module = device.load(self.strided_source(v, narrow))
                kinds = (len(packed), "q", *self.operands.kinds())
                modules[v, narrow] = module, kinds
                functions[v, narrow] = module.function("map_strided", kinds)
            unroll = 4 if v == 1 else self._unroll(v)
            found = functions[v, narrow], -(-groups // (BLOCK * unroll)), packed, groups, (v, narrow)
            return remember(plans, geometry, found, 4096)

        def run(geometry: bytes, *operands: Any) -> None:
            function, grid, packed, groups, _ = plans.get(geometry) or plan(geometry)
            function(grid, BLOCK, packed, groups, *operands)

        def fixed(geometry: bytes) -> Callable[..., None]:
            _, grid, packed, groups, variant = plan(geometry)
            module, kinds = modules[variant]
            return module.fixed("map_strided", kinds, grid, BLOCK, (packed, groups))

        run.fixed = fixed  # type: ignore[attr-defined]
        return run

    def unpacked(self, geometry: bytes) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        rank = self.recipe.rank
        numbers = struct.unpack(f"<{len(geometry) // 8}q", geometry)
        return numbers[:rank], [numbers[k : k + rank] for k in range(rank, len(numbers), rank)]

    def vector_for(self, sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> int:
        """Return the number of neighbours that one access may take: every row and step between rows is a multiple of it. (Unaligned pointers
        are read element by element.)"""
        if "s" in self.pointer_kinds.values():
            return 1
        for v in (8, 4, 2):
            if v > self.vector or sizes[-1] % v:
                continue
            dense = [s for s, kind in zip(strides, self.pointer_kinds.values()) if kind == "c"]
            if all(step % v == 0 for s in dense for step in s[:-1]):
                return v
        return 1
