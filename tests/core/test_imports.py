"""What importing modules of the package does not do."""

from __future__ import annotations

import subprocess
import sys

WALK = """
import importlib, pkgutil, threading, warnings

import flambeau
from flambeau.core import modes, watching

warnings.simplefilter("ignore")
ready, go, found, imported = threading.Event(), threading.Event(), [], 0

def look():
    found.append([str(mode) for mode in modes.own.stack])

def earlier():
    modes.own.stack
    ready.set()
    go.wait()
    look()

thread = threading.Thread(target=earlier, daemon=True)
thread.start()
ready.wait()
walked = pkgutil.walk_packages(flambeau.__path__, "flambeau.", onerror=lambda name: None)
names = [module.name for module in walked if not module.name.endswith("__main__")]
for name in names:
    try:
        importlib.import_module(name)
        imported += 1
    except ImportError:  # of a package that only this module needs
        pass
    if modes.active or watching.active:
        raise SystemExit(f"importing {name} puts on {modes.own.stack} {watching.told()}")
go.set()
thread.join()
look()
later = threading.Thread(target=look)
later.start()
later.join()
print(imported, found)
"""


def test_no_module_puts_a_mode_on():
    """A mode costs every operator of every thread two to three times its time."""
    done = subprocess.run([sys.executable, "-c", WALK], capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stdout + done.stderr
    count, _, found = done.stdout.strip().partition(" ")
    assert int(count) > 1000 and found == "[[], [], []]"
