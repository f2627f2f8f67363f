"""What type checkers and editors know about methods of tensors is written from the records, and up to date."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys

from flambeau.core.tensor import Tensor
from flambeau.ops import OPS
from flambeau.utils import namespace_stubs, stubs


def test_the_stub_is_up_to_date() -> None:
    # In a process of its own: other tests add operators.
    done = subprocess.run([sys.executable, "-m", "flambeau.utils.stubs", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, "run python -m flambeau.utils.stubs" + done.stderr


def test_every_function_of_an_operator_is_known_to_type_checkers() -> None:
    for namespace in namespace_stubs.NAMESPACES:
        tree = ast.parse(namespace_stubs.path_of(namespace).read_text())
        known = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        space = namespace or "torch"
        wanted = {
            op.name for op in OPS.values() if op.namespaces[:1] == (space,) and op.function.__module__ != "__main__"
        }
        module = importlib.import_module(f"flambeau.{namespace}" if namespace else "flambeau")
        assert {n for n in wanted if getattr(getattr(module, n, None), "op", None) is not None} - known == set()


def test_every_method_of_an_operator_is_known_to_type_checkers() -> None:
    (methods,) = [n for n in ast.parse(stubs.written()).body if isinstance(n, ast.ClassDef)]
    known = {n.name for n in methods.body if isinstance(n, ast.FunctionDef)} | stubs._defined_in_class()
    bound = {op.name for op in OPS.values() if op.method is not None and getattr(Tensor, op.name, None) is op.method}
    assert len(bound) > 300 and bound - known == set()
