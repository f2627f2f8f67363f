"""What came out of a run: read from the worker's log, and printed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Outcome = dict[str, Any]  # outcome, error, traceback, seconds


@dataclass
class Results:
    tests: dict[str, Outcome] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)  # what the stand-ins had to guess
    running: str | None = None  # begun, but without an outcome


def read_results(log: Path) -> Results:
    results = Results()
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        if "notes" in entry:
            results.notes = entry["notes"]
        elif "begin" in entry:
            results.running = entry["begin"]
        else:
            results.running = None
            results.tests[entry.pop("test")] = entry
    return results


def print_report(results: Results, baseline: dict[str, Outcome] | None, slowest: int, verbose: bool) -> None:
    _print_classes(results.tests)
    failed = {name: outcome for name, outcome in results.tests.items() if outcome["outcome"] == "failed"}
    if baseline is not None:
        passed_there = {name for name, outcome in baseline.items() if outcome["outcome"] == "passed"}
        skipped_here = [n for n in passed_there & set(results.tests) if results.tests[n]["outcome"] == "skipped"]
        failed = {name: outcome for name, outcome in failed.items() if name in passed_there}
        absent = len(passed_there - set(results.tests))
        print(
            f"\n{len(failed)} fail here and pass with PyTorch; {len(skipped_here)} are skipped only here, {absent} not run"
        )
        for name in sorted(skipped_here):
            print(f"  skipped: {name}: {results.tests[name]['error']}")
    _print_failures(failed, verbose)
    for title, names in results.notes.items():
        print(f"\n{title}: {', '.join(sorted(names))}")
    for name, outcome in sorted(results.tests.items(), key=lambda item: -item[1]["seconds"])[:slowest]:
        print(f"{outcome['seconds']:8.2f} s  {name}")


def _print_classes(tests: dict[str, Outcome]) -> None:
    counts: dict[str, Counter] = defaultdict(Counter)
    for name, outcome in tests.items():
        counts[name.partition(".")[0]][outcome["outcome"]] += 1
        counts["all"][outcome["outcome"]] += 1
    for name, count in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])):
        print(f"{name:40} passed {count['passed']:5}  failed {count['failed']:5}  skipped {count['skipped']:5}")


def _print_failures(failed: dict[str, Outcome], verbose: bool) -> None:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, outcome in failed.items():
        groups[outcome["error"][:200]].append(name)
    for error, names in sorted(groups.items(), key=lambda item: -len(item[1])):
        print(f"\n{len(names):4}  {error}")
        for name in names if verbose else names[:8]:
            print(f"        {name}")
            if verbose and "traceback" in failed[name]:
                print(failed[name]["traceback"])
        if not verbose and len(names) > 8:
            print(f"        and {len(names) - 8} more")
