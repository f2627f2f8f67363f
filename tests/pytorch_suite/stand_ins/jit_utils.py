"""What tests of graphs and of TorchScript are made of."""

from __future__ import annotations

import io
import sys
from typing import Any

from torch.testing._internal.case import TestCase
from torch.testing._internal.permissive import guess


class JitTestCase(TestCase):
    """A test case; PyTorch's adds helpers for compiled programs."""

    class capture_stderr(list):  # noqa: N801
        """Inside, what is written to stderr is kept; afterwards it is the one item of the list."""

        def __enter__(self) -> Any:
            self.original, sys.stderr = sys.stderr, io.StringIO()
            return self

        def __exit__(self, *details: Any) -> None:
            self.append(sys.stderr.getvalue())  # type: ignore[union-attr]
            sys.stderr = self.original


def __getattr__(name: str) -> Any:
    return guess(__name__, name)
