"""Tracking of the running module, in the forward pass and in the backward pass of what it computed."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

from ..autograd.graph import register_multi_grad_hook
from ..core.tensor import Tensor
from ..nn.modules.module import Module, register_module_forward_hook, register_module_forward_pre_hook
from ._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Context manager: `parents` holds the names of the modules whose forward or backward pass is running: `Net`, `Net.conv`. "Global" is
    always among them. `is_bw` says whether the backward pass runs."""

    parents: set[str]

    def __init__(self) -> None:
        self.parents = {"Global"}
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[Module] = weakref.WeakSet()
        self._in_backward = False

    @property
    def is_bw(self) -> bool:
        return self._in_backward

    def _name(self, module: Module) -> str:
        """Return the name of a module: its class for a root, with the path for children, fixed when it is first seen."""
        if module not in self._names:
            self._names[module] = type(module).__name__
        name = self._names[module]
        if module not in self._seen:
            for place, child in module.named_children():
                self._names[child] = f"{name}.{place}"
                self._name(child)
            self._seen.add(module)
        return name

    def _enters(self, name: str, backward: bool) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            if backward:
                self._in_backward = True
            if name in self.parents:
                way = "bw" if backward else "fw"
                warnings.warn(
                    "The module hierarchy tracking seems to be broken as this Module was already entered."
                    f" {name} during {way}",
                    stacklevel=2,
                )
            self.parents.add(name)

        return enter

    def _leaves(self, name: str, backward: bool) -> Callable[..., None]:
        def leave(*_: Any) -> None:
            if name in self.parents:
                self.parents.remove(name)
            elif not backward:
                raise RuntimeError(
                    "The Module hierarchy tracking is wrong. Report a bug to PyTorch: a Module was left that was never"
                    f" entered: {name}"
                )
            if backward and self.parents == {"Global"}:
                self._in_backward = False

        return leave

    def _before(self, module: Module, args: Any) -> None:
        name = self._name(module)
        self._enters(name, False)()
        tensors = [a for a in tree_leaves(args) if isinstance(a, Tensor) and a.requires_grad]
        if tensors:
            register_multi_grad_hook(tensors, self._leaves(name, True))

    def _after(self, module: Module, args: Any, result: Any) -> None:
        name = self._name(module)
        self._leaves(name, False)()
        tensors = [a for a in tree_leaves(result) if isinstance(a, Tensor) and a.requires_grad]
        if tensors:
            register_multi_grad_hook(tensors, self._enters(name, True), mode="any")

    def __enter__(self) -> ModuleTracker:
        self._handles = (
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        )
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
