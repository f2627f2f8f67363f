"""The native functions of `winograd`, as LLVM text: they accept any sizes, and are compiled once for a machine.

Everything is counted in float32 numbers. `lanes` of them fill a vector register; feature maps are channels last inside, so that a vector
holds one place of `lanes` channels. Sizes come in a table of 64-bit words (`FIELDS`), then the places of pixels and tiles.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence

from ...kernels.llvm_text import Function, Value

ROWS = 6  # rows of a product that are kept in registers, with `vectors` vectors each
FIELDS = (
    "images", "group", "shares", "groups", "inputs", "outputs", "input_pixels", "output_pixels", "input_space", "output_space",
    "tiles", "block", "input_row", "output_row", "input_step", "output_step", "numbers", "swapped", "terms", "positive",
    "input_last", "output_last", "weight_last", "odd",
)  # fmt: skip
# The matrices of F(2x2, 3x3): a result is A' [(G g G') * (B' d B)] A, product by product. Rows are (coefficient, which) pairs.
B = (((1, 0), (-1, 2)), ((1, 1), (1, 2)), ((-1, 1), (1, 2)), ((1, 1), (-1, 3)))
G = (((1, 0),), ((0.5, 0), (0.5, 1), (0.5, 2)), ((0.5, 0), (-0.5, 1), (0.5, 2)), ((1, 2),))
A = (((1, 0), (1, 1), (1, 2)), ((1, 1), (-1, 2), (-1, 3)))
Matrix = Sequence[Sequence[tuple[float, int]]]


def transposed(matrix: Matrix) -> Matrix:
    size = 1 + max(k for row in matrix for _, k in row)
    return [[(c, i) for i, row in enumerate(matrix) for c, k in row if k == column] for column in range(size)]


class TileFunction(Function):
    """Writer of a function over vectors of float32."""

    def __init__(self, head: str, lanes: int):
        super().__init__(head)
        self.lanes, self.vector = lanes, f"<{lanes} x float>"

    def at(self, pointer: str, *terms: Value) -> str:
        return self.place(pointer, self.add(*terms), "float")

    def load(self, pointer: str) -> str:
        return self.new(f"load {self.vector}, ptr {pointer}, align 4")

    def store(self, value: str, pointer: str) -> None:
        self.do(f"store {self.vector} {value}, ptr {pointer}, align 4")

    def smaller(self, a: Value, b: Value) -> str:
        return self.intrinsic("smin", "i64", a, b)

    # -- vectors ----------------------------------------------------------------------------------------------------
    def combined(self, row: Sequence[tuple[float, int]], values: Sequence[str]) -> str:
        """Emit the sum of a matrix's row times vectors."""
        total = ""
        for size in sorted({abs(c) for c, _ in row}):
            part = ""
            for c, k in sorted((pair for pair in row if abs(pair[0]) == size), key=lambda pair: -pair[0]):
                if not part:  # one that is added, if there is any
                    part = values[k] if c > 0 else self.new(f"fneg {self.vector} {values[k]}")
                else:
                    part = self.new(f"{'fadd' if c > 0 else 'fsub'} {self.vector} {part}, {values[k]}")
            if size != 1:
                many = ", ".join([f"float {size:e}"] * self.lanes)
                part = self.new(f"fmul {self.vector} {part}, <{many}>")
            total = part if not total else self.new(f"fadd {self.vector} {total}, {part}")
        return total

    def both_ways(self, matrix: Matrix, grid: Sequence[Sequence[str]]) -> list[list[str]]:
        """Emit matrix @ grid @ matrix', element by element of the vectors."""
        columns = [[self.combined(row, [line[j] for line in grid]) for row in matrix] for j in range(len(grid[0]))]
        return [[self.combined(row, [column[i] for column in columns]) for row in matrix] for i in range(len(matrix))]

    def turned(self, rows: list[str]) -> list[str]:
        """Emit the transpose: vector j of the result holds lane j of every row."""
        size, distance = self.lanes, 1
        while distance < size:
            done = list(rows)
            for i in range(size):
                if i & distance:
                    continue
                a, b = rows[i], rows[i + distance]
                low = [lane if not lane & distance else size + lane - distance for lane in range(size)]
                high = [lane + distance if not lane & distance else size + lane for lane in range(size)]
                for place, picks in ((i, low), (i + distance, high)):
                    mask = ", ".join(f"i32 {p}" for p in picks)
                    done[place] = self.new(
                        f"shufflevector {self.vector} {a}, {self.vector} {b}, <{size} x i32> <{mask}>"
                    )
            rows, distance = done, 2 * distance
        return rows

    def nines(self, source: str) -> list[str]:
        """Load nine vectors: number e holds element e of each of `lanes` rows of nine numbers."""
        read, last = f"@llvm.masked.load.v{self.lanes}f32.p0", ("i32 4", self._first(), f"{self.vector} poison")
        rows = [self.call(self.vector, read, f"ptr {self.at(source, 9 * k)}", *last) for k in range(self.lanes)]
        found = self.turned(rows)[:9]
        for e in range(self.lanes, 9):
            vector = "poison"
            for lane in range(self.lanes):
                one = self.read("float", self.at(source, 9 * lane + e))
                vector = self.new(f"insertelement {self.vector} {vector}, float {one}, i64 {lane}")
            found.append(vector)
        return found

    def store_nines(self, values: list[str], to: str) -> None:
        """Store nine values of a 3x3 kernel back to memory."""
        rows = self.turned((values + ["poison"] * self.lanes)[: self.lanes])
        for k, row in enumerate(rows):
            store, where = f"@llvm.masked.store.v{self.lanes}f32.p0", f"ptr {self.at(to, 9 * k)}"
            self.call("void", store, f"{self.vector} {row}", where, "i32 4", self._first())
        for e in range(self.lanes, 9):
            for lane in range(self.lanes):
                one = self.new(f"extractelement {self.vector} {values[e]}, i64 {lane}")
                self.write("float", one, self.at(to, 9 * lane + e))

    def _first(self) -> str:
        """Return a mask of the first nine lanes."""
        return f"<{self.lanes} x i1> <{', '.join('i1 ' + str(lane < 9).lower() for lane in range(self.lanes))}>"


# -- products ---------------------------------------------------------------------------------------------------------------


@functools.cache
def product(lanes: int, rows: int, vectors: int, by_columns: bool) -> Function:
    """Return the function c (rows x vectors) = a @ b, or += if %more is set. Rows of a are %a_step apart, or, by columns, adjacent."""
    name = f"product_{rows}_{vectors}_{'columns' if by_columns else 'rows'}"
    f = TileFunction(
        f"define internal void @{name}(ptr noalias %c, i64 %c_step, ptr noalias %a, i64 %a_step, ptr noalias %b, i64 %b_step,"
        " i64 %depth, i1 %more) noinline nounwind",
        lanes,
    )
    sums = [[f.slot(f.vector) for _ in range(vectors)] for _ in range(rows)]
    places = [[f.at("%c", f.mul("%c_step", r), lanes * v) for v in range(vectors)] for r in range(rows)]
    for r in range(rows):
        for v in range(vectors):
            f.store("zeroinitializer", sums[r][v])
    with f.when("%more"):
        for r in range(rows):
            for v in range(vectors):
                f.store(f.load(places[r][v]), sums[r][v])
    left, right = f.variable("ptr", "%a"), f.variable("ptr", "%b")
    lines = ["%a"] * rows if by_columns else [f.at("%a", f.mul("%a_step", r)) for r in range(rows)]
    with f.loop("%depth") as d:
        a, b = (f.read("ptr", slot) for slot in (left, right))
        given = [f.load(f.at(b, lanes * v)) for v in range(vectors)]
        for r in range(rows):
            place = f.at(a, r) if by_columns else f.at(lines[r], d)
            one = f.read("float", place)
            first = f.new(f"insertelement {f.vector} poison, float {one}, i64 0")
            many = f.new(f"shufflevector {f.vector} {first}, {f.vector} poison, <{lanes} x i32> zeroinitializer")
            for v in range(vectors):
                before = f.load(sums[r][v])
                f.store(f.intrinsic("fma", f.vector, many, given[v], before), sums[r][v])
        if by_columns:
            f.write("ptr", f.at(a, "%a_step"), left)
        f.write("ptr", f.at(b, "%b_step"), right)
    for r in range(rows):
        for v in range(vectors):
            f.store(f.load(sums[r][v]), places[r][v])
    return f


def call_product(
    f: TileFunction, rows: int, vectors: int, by_columns: bool, c: str, a: str, b: str, steps: Sequence[Value],
    depth: Value, more: str,
) -> None:  # fmt: skip
    numbers = [f"i64 {step}" for step in steps]
    given = [text for pair in zip((f"ptr {c}", f"ptr {a}", f"ptr {b}"), numbers, strict=True) for text in pair]
    f.call("void", product(f.lanes, rows, vectors, by_columns), *given, f"i64 {depth}", f"i1 {more}")


def each_panel(f: TileFunction, columns: str, vectors: int) -> Iterator[tuple[Value, int]]:
    """Yield the first column of each panel, and its width in vectors: full ones, then the rest."""
    wide = vectors * f.lanes
    full = f.new(f"sdiv i64 {columns}, {wide}")
    whole = f.mul(full, wide)
    with f.loop(whole, 0, wide) as start:
        yield start, vectors
    left = f.sub(columns, whole)
    for v in range(1, vectors):
        with f.when(f.compare("eq", "i64", left, v * f.lanes)):
            yield whole, v


# -- parts -------------------------------------------------------------------------------------------------------------------


def entry(name: str, pointers: Sequence[str], parts: Sequence[Function]) -> Function:
    """Return the function that is called: it runs each part on all threads, one part after the other."""
    f = Function(f"define void @{name}({', '.join(f'ptr %{p}' for p in pointers)}) noinline nounwind")
    record = f.slot(f"[{len(pointers)} x ptr]")
    for i, p in enumerate(pointers):
        f.write("ptr", f"%{p}", f.place(record, i))
    # 1 in a forked process, whatever there was before.
    threads = f.read("i64", f.outside("flambeau_num_threads", "i64"))
    team = f.intrinsic("smin", "i64", f.item("%table", FIELDS.index("shares")), threads)
    with f.when(f.compare("slt", "i64", team, 2)):
        for part in parts:
            f.call("void", part, f"ptr {record}", "i64 0", "i64 1")
        f.ret()
    for part in parts:
        f.call("void", "@flambeau_parallel", f"ptr {f.bring(part)}", f"ptr {record}", f"i64 {team}")
    return f


class Part(TileFunction):
    """Function that a thread runs: some of the shares of the work. The assignment of work to shares does not depend on the number of threads."""

    def __init__(self, name: str, pointers: Sequence[str], lanes: int):
        super().__init__(f"define internal void @{name}(ptr %record, i64 %rank, i64 %size) noinline nounwind", lanes)
        for i, p in enumerate(pointers):
            self.do(f"%{p} = load ptr, ptr {self.place('%record', i)}")
        for i, field in enumerate(FIELDS):
            self.do(f"%{field} = load i64, ptr {self.place('%table', i)}")
        self.input_place = self.place("%table", len(FIELDS))
        self.output_place = self.place(self.input_place, "%input_pixels")
        self.input_tile = self.place(self.output_place, "%output_pixels")
        group_tiles = self.mul("%group", "%tiles")
        self.output_tile = self.place(self.input_tile, group_tiles)

    def range(self, count: Value, share: Value, shares: Value) -> tuple[str, str]:
        """Return the first and the end of the items of `count` that belong to a share."""
        bounds = [self.new(f"sdiv i64 {self.mul(count, self.add(share, k))}, {shares}") for k in (0, 1)]
        return bounds[0], bounds[1]

    @contextlib.contextmanager
    def shares(self) -> Iterator[str]:
        first, last = self.range("%shares", "%rank", "%size")
        with self.loop(last, first) as share:
            yield share

    def look(self, value: str, seen: str) -> None:
        """Record in the vector `seen`, which begins as zeros, whether a value is infinite or nan: it becomes nan then."""
        zeros = self.new(f"fmul {self.vector} {value}, zeroinitializer")
        self.store(self.new(f"fadd {self.vector} {self.load(seen)}, {zeros}"), seen)

    def tell(self, seen: str) -> None:
        """Report in the table that there was an infinite or nan value."""
        found = self.load(seen)
        lanes = self.new(f"fcmp uno {self.vector} {found}, {found}")
        bits = self.new(f"bitcast <{self.lanes} x i1> {lanes} to i{self.lanes}")
        with self.when(self.new(f"icmp ne i{self.lanes} {bits}, 0")):
            self.write("i64", 1, self.place("%table", FIELDS.index("odd")))

    def clear(self, pointer: str, numbers: Value) -> None:
        size = self.mul(numbers, 4)
        self.call("void", "@llvm.memset.p0.i64", f"ptr {pointer}", "i8 0", f"i64 {size}", "i1 false")

    def channels_last(self, to: str, planes: str, channels: str, pixels: str, places: str, last: str) -> None:
        """Convert a feature map to channels-last, or copy it if it is; a table has the destination of each pixel."""
        already = self.compare("ne", "i64", last, 0)
        with self.when(already), self.loop(pixels) as p:
            source, target = self.at(planes, self.mul(p, channels)), self.at(to, self.item(places, p))
            with self.loop(channels, 0, self.lanes) as c:
                self.store(self.load(self.at(source, c)), self.at(target, c))
        whole = self.new(f"and i64 {pixels}, {-self.lanes}")
        with self.when(self.new(f"xor i1 {already}, true")), self.loop(channels, 0, self.lanes) as c:
            with self.loop(whole, 0, self.lanes) as p:
                rows = [self.load(self.at(planes, self.mul(self.add(c, k), pixels), p)) for k in range(self.lanes)]
                for k, row in enumerate(self.turned(rows)):
                    self.store(row, self.at(to, self.item(places, self.add(p, k)), c))
            with self.loop(pixels, whole) as p:
                place = self.item(places, p)
                with self.loop(self.lanes) as lane:
                    channel = self.add(c, lane)
                    one = self.read("float", self.at(planes, self.mul(channel, pixels), p))
                    self.write("float", one, self.at(to, place, channel))

    def channels_first(self, planes: str, source: str, channels: str, pixels: str, places: str, extra: str) -> None:
        """Convert back from channels-last, unless the result is channels-last, too, adding extra numbers and clamping to 0 if requested."""
        already = self.compare("ne", "i64", "%output_last", 0)
        whole = self.new(f"and i64 {pixels}, {-self.lanes}")
        added, positive = self.compare("ne", "ptr", "%extra", "null"), self.compare("ne", "i64", "%positive", 0)

        def finish(value: str, kind: str, *place: Value) -> None:
            kept = self.slot(kind)
            self.do(f"store {kind} {value}, ptr {kept}")
            with self.when(added):
                more = self.new(f"load {kind}, ptr {self.at(extra, *place)}, align 4")
                self.do(f"store {kind} {self.new(f'fadd {kind} {value}, {more}')}, ptr {kept}")
            with self.when(positive):  # not the larger one of two: that would lose a nan
                found = self.new(f"load {kind}, ptr {kept}")
                below = self.new(f"fcmp olt {kind} {found}, zeroinitializer")
                bits = f"<{self.lanes} x i1>" if kind == self.vector else "i1"
                chosen = self.new(f"select {bits} {below}, {kind} zeroinitializer, {kind} {found}")
                self.do(f"store {kind} {chosen}, ptr {kept}")
            found = self.new(f"load {kind}, ptr {kept}")
            self.do(f"store {kind} {found}, ptr {self.at(planes, *place)}, align 4")

        with self.when(already), self.loop(pixels) as p:
            start, pixel = self.mul(p, channels), self.at(source, self.item(places, p))
            with self.loop(channels, 0, self.lanes) as c:
                finish(self.load(self.at(pixel, c)), self.vector, start, c)
        with self.when(self.new(f"xor i1 {already}, true")), self.loop(channels, 0, self.lanes) as c:
            with self.loop(whole, 0, self.lanes) as p:
                rows = [self.load(self.at(source, self.item(places, self.add(p, k)), c)) for k in range(self.lanes)]
                for k, row in enumerate(self.turned(rows)):
                    finish(row, self.vector, self.mul(self.add(c, k), pixels), p)
            with self.loop(pixels, whole) as p:
                place = self.item(places, p)
                with self.loop(self.lanes) as lane:
                    channel = self.add(c, lane)
                    one = self.read("float", self.at(source, place, channel))
                    finish(one, "float", self.mul(channel, pixels), p)

    def spread_tiles(
        self, to: str, step: str, source: str, tiles: str, row: str, channels: str, first: Value, count: str,
        matrix: Matrix, size: int,
    ) -> None:  # fmt: skip
        """Write the 16 operands of products for each tile of `size` x `size` pixels, each into a matrix of its own."""
        with self.loop(count) as t:
            tile = self.at(source, self.item(tiles, self.add(first, t)))
            made = self.at(to, self.mul(t, channels))
            with self.loop(channels, 0, self.lanes) as c:
                grid = [
                    [self.load(self.at(tile, self.mul(row, i), self.mul(channels, j), c)) for j in range(size)]
                    for i in range(size)
                ]
                for i, line in enumerate(self.both_ways(matrix, grid)):
                    for j, value in enumerate(line):
                        self.store(value, self.at(made, self.mul(step, 4 * i + j), c))


CONVOLVE = ("y", "scratch", "x", "w", "bias", "scale", "extra", "table")


@functools.cache
def convolve(lanes: int, vectors: int) -> Function:
    """Return the function y = x convolved with w, times a scale for each channel, plus a bias, plus numbers like y, at least 0: as far as
    there are a scale, a bias, extra numbers, and the table says `positive`."""
    f = Part("convolve_part", CONVOLVE, lanes)
    first_share = f.at("%scratch", f.mul(f.mul("%inputs", "%outputs"), 16))  # behind what `_weights` makes
    with f.shares() as share:
        maps = f.at(first_share, f.mul(share, "%numbers"))
        spread = f.at(maps, f.mul("%group", "%input_space"))
        sums = f.at(spread, f.mul("%input_step", 16))
        results = f.at(sums, f.mul("%output_step", 16))
        f.clear(maps, f.mul("%group", "%input_space"))
        first_group, last_group = f.range("%groups", share, "%shares")
        with f.loop(last_group, first_group) as group:
            start = f.mul(group, "%group")
            here = f.smaller("%group", f.sub("%images", start))
            with f.loop(here) as i:
                planes = f.at("%x", f.mul(f.mul(f.add(start, i), "%inputs"), "%input_pixels"))
                f.channels_last(
                    f.at(maps, f.mul(i, "%input_space")),
                    planes,
                    "%inputs",
                    "%input_pixels",
                    f.input_place,
                    "%input_last",
                )
            count = f.mul(here, "%tiles")
            with f.loop(count, 0, "%block") as first:
                some = f.smaller("%block", f.sub(count, first))
                f.spread_tiles(spread, "%input_step", maps, f.input_tile, "%input_row", "%inputs", first, some, B, 4)
                with f.loop(16) as k:
                    a = f.at(spread, f.mul(k, "%input_step"))
                    c = f.at(sums, f.mul(k, "%output_step"))
                    b = f.at("%scratch", f.mul(f.mul(k, "%inputs"), "%outputs"))
                    for column, width in each_panel(f, "%outputs", vectors):
                        with f.loop(some, 0, ROWS) as r:
                            call_product(
                                f, ROWS, width, False,
                                f.at(c, f.mul(r, "%outputs"), column), f.at(a, f.mul(r, "%inputs")),
                                f.at(b, f.mul(column, "%inputs")), ("%outputs", "%inputs", width * lanes),
                                "%inputs", "false",
                            )  # fmt: skip
                _gather_tiles(f, results, sums, first, some)
            with f.loop(here) as i:
                first_number = f.mul(f.mul(f.add(start, i), "%outputs"), "%output_pixels")
                source = f.at(results, f.mul(i, "%output_space"))
                planes, extra = f.at("%y", first_number), f.at("%extra", first_number)
                f.channels_first(planes, source, "%outputs", "%output_pixels", f.output_place, extra)
    return entry("convolve", CONVOLVE, [_weights(lanes, vectors), f])


def _gather_tiles(f: Part, results: str, sums: str, first: Value, some: str) -> None:
    """Emit the 2 x 2 results of each tile from its 16 sums."""
    ones = f"<{', '.join(['float 1.0'] * f.lanes)}>"
    given = {name: f.compare("ne", "ptr", f"%{name}", "null") for name in ("bias", "scale")}
    seen = f.slot(f.vector)
    f.store("zeroinitializer", seen)
    with f.loop(some) as t:
        place = f.at(results, f.item(f.output_tile, f.add(first, t)))
        source = f.at(sums, f.mul(t, "%outputs"))
        with f.loop("%outputs", 0, f.lanes) as c:
            by_channel = {}
            for name, plain in (("bias", "zeroinitializer"), ("scale", ones)):
                kept = f.slot(f.vector)
                f.store(plain, kept)
                with f.when(given[name]):
                    f.store(f.load(f.at(f"%{name}", c)), kept)
                by_channel[name] = f.load(kept)
            grid = [[f.load(f.at(source, f.mul("%output_step", 4 * i + j), c)) for j in range(4)] for i in range(4)]
            for i, line in enumerate(f.both_ways(A, grid)):
                for j, value in enumerate(line):
                    f.look(value, seen)
                    value = f.new(f"fmul {f.vector} {value}, {by_channel['scale']}")
                    value = f.new(f"fadd {f.vector} {value}, {by_channel['bias']}")
                    f.store(value, f.at(place, f.mul("%output_row", i), f.mul("%outputs", j), c))
    f.tell(seen)


def _weights(lanes: int, vectors: int) -> Part:
    """Return the function that writes G w G' for each pair of channels to the beginning of the scratch memory: a matrix (inputs, outputs) for
    each of 16, in panels of outputs. If the table says `swapped`, w is (inputs, outputs, 3, 3) and mirrored: the gradient of the input."""
    f = Part("weights_part", CONVOLVE, lanes)
    lasting = f.compare("ne", "i64", "%weight_last", 0)
    plain, block = f.compare("eq", "i64", "%swapped", 0), f.slot(f"[{9 * lanes * lanes} x float]")
    wide, whole_step = vectors * lanes, f.mul("%inputs", "%outputs")
    whole = f.mul(f.new(f"sdiv i64 %outputs, {wide}"), wide)
    left = f.sub("%outputs", whole)
    with f.shares() as share:
        first, last = f.range(f.new(f"sdiv i64 %outputs, {lanes}"), share, "%shares")
        with f.loop(last, first) as number:
            k = f.mul(number, lanes)
            inside = f.compare("slt", "i64", k, whole)
            start = f.new(f"select i1 {inside}, i64 {f.mul(f.new(f'sdiv i64 {k}, {wide}'), wide)}, i64 {whole}")
            width = f.new(f"select i1 {inside}, i64 {wide}, i64 {left}")
            panel = f.at("%scratch", f.mul(start, "%inputs"), f.sub(k, start))

            def keep(c: Value, values: list[str], k: Value = k, panel: str = panel, width: str = width) -> None:
                grid = [values[3 * i : 3 * i + 3] for i in range(3)]
                for i, line in enumerate(f.both_ways(G, grid)):
                    for j, value in enumerate(line):
                        f.store(value, f.at(panel, f.mul(whole_step, 4 * i + j), f.mul(c, width)))

            row = f.mul("%inputs", 9)
            with f.when(plain), f.loop("%inputs", 0, lanes) as c:
                # Element e of channel c is number 9 c + e of a row, or, channels last, number e * inputs + c.
                source = f.at("%w", f.mul(k, row), f.new(f"select i1 {lasting}, i64 {c}, i64 {f.mul(c, 9)}"))
                part_step = f.new(f"select i1 {lasting}, i64 %inputs, i64 {lanes}")
                one_step, element_step = (
                    f.new(f"select i1 {lasting}, i64 {a}, i64 {b}")
                    for a, b in ((lanes, 9 * lanes), (lanes * lanes, lanes))
                )
                for part in range(9):
                    start = f.at(source, f.mul(part_step, part))
                    rows = [f.load(f.at(start, f.mul(row, lane))) for lane in range(lanes)]
                    for j, value in enumerate(f.turned(rows)):
                        f.store(value, f.at(block, (part * lanes + j) * lanes))
                with f.loop(lanes) as one:
                    place = f.at(block, f.mul(one, one_step))
                    keep(f.add(c, one), [f.load(f.at(place, f.mul(element_step, e))) for e in range(9)])
            turned = f.new(f"xor i1 {plain}, true")
            with f.when(f.new(f"and i1 {turned}, {lasting}")), f.loop("%inputs") as c:
                source = f.at("%w", f.mul(f.mul(c, "%outputs"), 9), k)
                keep(c, [f.load(f.at(source, f.mul("%outputs", e))) for e in reversed(range(9))])
            with f.when(f.new(f"and i1 {turned}, {f.new(f'xor i1 {lasting}, true')}")), f.loop("%inputs") as c:
                keep(c, f.nines(f.at("%w", f.mul(f.add(f.mul(c, "%outputs"), k), 9)))[::-1])
    return f
