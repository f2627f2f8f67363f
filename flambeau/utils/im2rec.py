"""`flambeau im2rec`: lists of images, and record files of the images in a list, as MXNet's tool of this name makes them.

A list has one line per image: number, label or labels, path, with tabs between them.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from .pillow import decode, pillow
from .progress import Progress
from .recordio import IRHeader, MXIndexedRecordIO, encode_image, pack, with_color


@dataclass(frozen=True)
class Entry:
    """A line of an image list."""

    number: int
    labels: tuple[float, ...]
    path: str

    def line(self) -> str:
        return "\t".join([str(self.number), *(f"{label:f}" for label in self.labels), self.path]) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prefix", help="what the names of the .lst, .rec and .idx files begin with")
    parser.add_argument("root", help="the folder with the images")
    lists = parser.add_argument_group("making lists")
    lists.add_argument("--list", action="store_true", help="make PREFIX.lst; without it, make records from PREFIX*.lst")
    lists.add_argument("--exts", nargs="+", default=[".jpeg", ".jpg", ".png"], help="endings of image files")
    lists.add_argument("--chunks", type=int, default=1, help="how many lists")
    lists.add_argument("--train-ratio", type=float, default=1.0, help="the share of images in PREFIX_train.lst")
    lists.add_argument("--test-ratio", type=float, default=0.0, help="the share of images in PREFIX_test.lst")
    lists.add_argument(
        "--recursive", action="store_true", help="every folder below ROOT is a class and has its own label"
    )
    lists.add_argument(
        "--no-shuffle", dest="shuffle", action="store_false", help="keep the images in the order of names"
    )
    records = parser.add_argument_group("making records")
    records.add_argument("--pass-through", action="store_true", help="store the files as they are")
    records.add_argument("--resize", type=int, default=0, help="the new length of the shorter edge; 0 keeps the size")
    records.add_argument("--center-crop", action="store_true", help="cut out the square in the middle")
    records.add_argument("--quality", type=int, default=95, help="of JPEG, 1 to 100; or the compression of PNG, 0 to 9")
    records.add_argument("--num-thread", type=int, default=1, help="how many images are encoded at a time")
    records.add_argument("--color", type=int, default=1, choices=[-1, 0, 1], help="1 colour, 0 grey, -1 as it is")
    records.add_argument("--encoding", default=".jpg", choices=[".jpg", ".png"], help="how images are stored")
    records.add_argument("--pack-label", action="store_true", help="store all labels of a line, not only the first")


def run(options: argparse.Namespace) -> int:
    if not os.path.isdir(options.root):
        print(f"{options.root} is not a folder", file=sys.stderr)
        return 1
    return make_lists(options) if options.list else make_records(options)


# -- lists ----------------------------------------------------------------------------------------------------------------


def list_images(root: str, recursive: bool, endings: Iterable[str]) -> list[Entry]:
    """Return the images of a folder in order of their names; with `recursive`, folders are numbered in the order of appearance."""
    wanted = {e.lower() for e in endings}
    labels: dict[str, int] = {}
    found: list[Entry] = []
    for folder, below, files in os.walk(root, followlinks=recursive):
        below.sort()
        if not recursive:
            below.clear()
        for name in sorted(files):
            path = os.path.join(folder, name)
            if os.path.splitext(name)[1].lower() in wanted and os.path.isfile(path):
                label = labels.setdefault(folder, len(labels))
                found.append(Entry(len(found), (label,), os.path.relpath(path, root)))
    if recursive:
        for folder, label in labels.items():
            print(os.path.relpath(folder, root), label)
    return found


def make_lists(options: argparse.Namespace) -> int:
    shares = options.train_ratio, options.test_ratio
    if min(shares) < 0 or sum(shares) > 1 + 1e-9 or options.chunks < 1:
        print(
            "the train and test ratios must not be negative, nor their sum above 1, and chunks must be positive; got"
            f" {options.train_ratio}, {options.test_ratio} and {options.chunks}",
            file=sys.stderr,
        )
        return 1
    images = list_images(options.root, options.recursive, options.exts)
    if options.shuffle:
        random.Random(100).shuffle(images)  # MXNet's seed: the same folder gives the same list
    size = -(-len(images) // options.chunks)
    for number in range(options.chunks):
        chunk = images[number * size : (number + 1) * size]
        stem = options.prefix + (f"_{number}" if options.chunks > 1 else "")
        _write_lists(stem, chunk, int(size * options.train_ratio), int(size * options.test_ratio), options)
    return 0


def _write_lists(stem: str, chunk: list[Entry], train: int, test: int, options: argparse.Namespace) -> None:
    if options.train_ratio == 1.0:
        _write_list(f"{stem}.lst", chunk)
        return
    if options.test_ratio:
        _write_list(f"{stem}_test.lst", chunk[:test])
    if options.train_ratio + options.test_ratio < 1.0:
        _write_list(f"{stem}_val.lst", chunk[test + train :])
    _write_list(f"{stem}_train.lst", chunk[test : test + train])


def _write_list(path: str, entries: Iterable[Entry]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(entry.line() for entry in entries)


def read_list(path: str) -> Iterator[Entry]:
    """Yield the entries of a list; invalid lines are reported and skipped."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            fields = [field.strip() for field in line.strip().split("\t")]
            try:
                if len(fields) < 3:
                    raise ValueError(f"at least a number, a label and a path are needed, got {len(fields)} fields")
                entry = Entry(int(fields[0]), tuple(float(f) for f in fields[1:-1]), fields[-1])
            except ValueError as problem:
                print(f"{path}, line {number}: {problem}", file=sys.stderr)
                continue
            yield entry


# -- records --------------------------------------------------------------------------------------------------------------


def make_records(options: argparse.Namespace) -> int:
    prefix = os.path.abspath(options.prefix)
    folder = prefix if os.path.isdir(prefix) else os.path.dirname(prefix)
    if not os.path.isdir(folder):
        print(f"{folder} is not a folder", file=sys.stderr)
        return 1
    lists = sorted(
        path
        for path in (os.path.join(folder, name) for name in os.listdir(folder))
        if path.startswith(prefix) and path.endswith(".lst") and os.path.isfile(path)
    )
    if not lists:
        print(f"no list begins with {options.prefix}: make one with --list", file=sys.stderr)
        return 1
    if not options.pass_through:
        pillow()  # complain once, and before the work begins
    failures = sum(_make_record(path, options) for path in lists)
    return 1 if failures else 0


def _make_record(path: str, options: argparse.Namespace) -> int:
    """Make a record file from a list; return how many images could not be packed."""
    stem = os.path.splitext(path)[0]
    entries = list(read_list(path))
    written = 0
    with MXIndexedRecordIO(f"{stem}.idx", f"{stem}.rec", "w") as record:
        for entry, data in Progress(_pack_records(entries, options), os.path.basename(stem), total=len(entries)):
            if isinstance(data, bytes):
                record.write_idx(entry.number, data)
                written += 1
            else:
                print(f"{os.path.join(options.root, entry.path)}: {data}", file=sys.stderr)
    print(f"{stem}.rec: {written} images" + (f", {len(entries) - written} left out" if written < len(entries) else ""))
    return len(entries) - written


def _pack_records(entries: list[Entry], options: argparse.Namespace) -> Iterator[tuple[Entry, bytes | Exception]]:
    """Yield records in the list's order, encoded by several threads slightly ahead of the writer."""
    with ThreadPoolExecutor(max(options.num_thread, 1)) as pool:
        ahead: deque = deque()
        waiting = iter(entries)
        while True:
            while len(ahead) < 4 * max(options.num_thread, 1) and (entry := next(waiting, None)) is not None:
                ahead.append((entry, pool.submit(_pack_or_say_why, entry, options)))
            if not ahead:
                return
            entry, future = ahead.popleft()
            yield entry, future.result()


def _pack_or_say_why(entry: Entry, options: argparse.Namespace) -> bytes | Exception:
    try:
        return pack_entry(entry, options)
    except (OSError, RuntimeError, ValueError) as problem:  # one bad image does not end the whole work
        return problem


def pack_entry(entry: Entry, options: argparse.Namespace) -> bytes:
    label: Any = entry.labels if options.pack_label and len(entry.labels) > 1 else entry.labels[0]
    with open(os.path.join(options.root, entry.path), "rb") as file:
        data = file.read()
    if not options.pass_through:
        image = _resize(with_color(decode(data), options.color), options)
        data = encode_image(image, options.quality, options.encoding)
    return pack(IRHeader(0, label, entry.number, 0), data)


def _resize(image: Any, options: argparse.Namespace) -> Any:
    width, height = image.size
    if options.center_crop:
        edge = min(width, height)
        left, top = (width - edge) // 2, (height - edge) // 2
        image = image.crop((left, top, left + edge, top + edge))
        width = height = edge
    if options.resize:
        new = options.resize
        size = (new, height * new // width) if height > width else (width * new // height, new)
        image = image.resize(size, pillow().Resampling.BILINEAR)
    return image
