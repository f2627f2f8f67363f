"""State of a module that a composable function (`fully_shard`, `replicate`, `checkpoint`) has been applied to."""

from __future__ import annotations

import weakref

from ..nn import Module


class _State:
    """Base of the state that a composable function keeps for a module."""


_states: weakref.WeakKeyDictionary[Module, weakref.ref[_State]] = weakref.WeakKeyDictionary()


def _insert_module_state(module: Module, state: _State) -> None:
    if module in _states:
        raise AssertionError(f"Inserting {module} more than once.")
    _states[module] = weakref.ref(state)


def _get_module_state(module: Module) -> _State | None:
    """Return the state of a module, or the argument itself if it is a state."""
    if isinstance(module, _State):
        return module
    reference = _states.get(module)
    if reference is None:
        return None
    state = reference()
    if state is None:
        raise AssertionError("State has already been garbage collected")
    return state
