"""Assignment of stages to ranks, and helpers shared by stages and schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.tensor import Tensor
from ...utils._pytree import tree_leaves


class PipeliningMetadataError(RuntimeError):
    """Raised when a stage's input or output differs in shape or dtype from that of the first microbatch."""


@dataclass
class PipeInfo:
    """Description of a model that was split."""

    graph: Any
    num_stages: int
    has_loss_and_backward: bool


def described(*values: Any) -> str:
    """Return dtypes and shapes as text, for messages."""
    shown = [f"{t.dtype}{list(t.shape)}" if isinstance(t, Tensor) else repr(t)[:40] for t in tree_leaves(list(values))]
    return ", ".join(shown) or "nothing"


def generate_stage_to_rank_mapping(pp_size: int, num_stages: int, style: str = "loop") -> dict[int, int]:
    """Return the rank of each stage: cyclic ("loop"), or forward and back again ("v")."""
    if style == "loop":
        return {stage: stage % pp_size for stage in range(num_stages)}
    if style != "v":
        raise ValueError(f"Style {style} is not supported.")
    if num_stages % pp_size:
        raise ValueError(f"num_stages {num_stages} must be evenly divisible by pp_size {pp_size} for V schedules")
    return {
        stage: stage % pp_size if (stage // pp_size) % 2 == 0 else pp_size - 1 - stage % pp_size
        for stage in range(num_stages)
    }
