"""Modules that are moved: what the `to` of a parameter's own class is given."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau import nn


class _Noting(nn.Parameter):
    seen: list[Any] = []

    def to(self, *args: Any, **kwargs: Any) -> Any:
        _Noting.seen.append(args[0])
        return super().to(*args, **kwargs)


def test_a_device_given_by_name_arrives_as_a_device() -> None:
    module = nn.Linear(2, 2)
    module.weight = _Noting(flambeau.ones(2, 2))
    _Noting.seen.clear()
    module.to("cpu")
    module.to(flambeau.float64)
    assert _Noting.seen == [flambeau.device("cpu"), None]
    assert isinstance(_Noting.seen[0], flambeau.device)
