"""Attention whose scores and mask are functions of batch, head, query and key.

>>> def causal(b, h, q_idx, kv_idx):
...     return q_idx >= kv_idx
>>> mask = create_block_mask(causal, B=None, H=None, Q_LEN=256, KV_LEN=256, device="cpu")
>>> out = flex_attention(query, key, value, block_mask=mask)

The functions are mapped over all positions at once and the scores are computed whole, as PyTorch does outside of `torch.compile`.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import flambeau

from ...core import dtype as dt
from ...core.tensor import Tensor

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask",
           "or_masks"]  # fmt: skip

_DEFAULT_SPARSE_BLOCK_SIZE = 128
_LARGE_SPARSE_BLOCK_SIZE = 1 << 30
_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = False  # a switch of PyTorch's; here the functions are never compiled

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class AuxRequest(NamedTuple):
    """Selection of further results of `flex_attention`: logarithms of the sums, largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Auxiliary results that an `AuxRequest` selected; the others are None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Return a mask that hides nothing."""
    return batch.new_ones((), dtype=flambeau.bool)


def _sliced_mask_mod_error(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return the union of masks: a position is visible if any of them shows it."""
    return _combine_masks(mask_mods, False, Tensor.__or__)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return the intersection of masks: a position is visible if all of them show it."""
    return _combine_masks(mask_mods, True, Tensor.__and__)


def _combine_masks(mask_mods: tuple, start: bool, join: Callable) -> MaskMod:
    if not all(callable(f) for f in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        result = b.new_full((), start, dtype=flambeau.bool)
        for f in mask_mods:
            result = join(result, f(b, h, q_idx, kv_idx))
        return result

    return mask


def _map_over_indices(function: Callable, leading: tuple) -> Callable:
    """Map a function of (..., b, h, q, kv) over all four indices; `leading` are the batch dims of the arguments before them."""
    for i in reversed(range(4)):  # the key is mapped innermost, the batch outermost
        dims = tuple(None if j != i else 0 for j in range(4))
        function = flambeau.vmap(function, in_dims=(*leading, *dims), out_dims=0)
    return function


def _positions(*sizes: int, device: Any) -> list[Tensor]:
    return [flambeau.arange(n, dtype=flambeau.int, device=device) for n in sizes]


def create_mask(mod_fn: Callable, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """Evaluate a mask function, or a score function on zero scores, as a tensor of shape (B, H, Q_LEN, KV_LEN)."""
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    where = flambeau.get_default_device() if device is None else device
    if _takes_score(mod_fn):
        zeros = flambeau.zeros(*sizes, device=where)
        shown = _map_over_indices(mod_fn, (0,))(zeros, *_positions(*sizes, device=where))
        return flambeau.where(shown.isneginf(), False, True)
    return _map_over_indices(mod_fn, ())(*_positions(*sizes, device=where)).broadcast_to(sizes)


def _takes_score(function: Callable) -> bool:
    """Return whether a function takes the score and indices, not indices only."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    defaults = len(getattr(function, "__defaults__", None) or ())
    count = code.co_argcount - defaults - (1 if hasattr(function, "__self__") else 0)
    if count not in (4, 5):
        raise AssertionError(f"mod_fn takes 4 (mask) or 5 (score) positional arguments, got {count}")
    return count == 5


def _round_up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def _order_blocks(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of blocks of each row, and all columns, those of its blocks first."""
    dense = dense.to(flambeau.int32)
    return dense.sum(-1, dtype=flambeau.int32), flambeau.argsort(dense, dim=-1, descending=True, stable=True).to(
        flambeau.int32
    )


def _dense_mask(num_blocks: Tensor, indices: Tensor, columns: int) -> Tensor:
    """Return the dense mask of ordered blocks: the inverse of `_order_blocks`."""
    position = flambeau.arange(indices.shape[-1], device=indices.device)
    kept = (position < num_blocks.unsqueeze(-1)).to(flambeau.int32)
    found = flambeau.zeros((*indices.shape[:-1], columns + 1), dtype=flambeau.int32, device=indices.device)
    target = flambeau.where(kept.bool(), indices, columns).to(flambeau.int64)
    return found.scatter(-1, target, 1)[..., :columns].contiguous()


def _transpose_blocks(num_blocks: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    return _order_blocks(_dense_mask(num_blocks, indices, indices.shape[-1]).mT)


class BlockMask:
    """The blocks of an attention matrix that are computed: those in which `mask_mod` decides (kv_num_blocks, kv_indices), and those that
    are completely visible (full_kv_num_blocks, full_kv_indices); with the same by keys (q_...)."""

    _TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
                "full_q_num_blocks", "full_q_indices")  # fmt: skip

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),  # noqa: N803  PyTorch's name
        mask_mod: MaskMod = noop_mask,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        for kind, count, indices in (
            ("kv", full_kv_num_blocks, full_kv_indices),
            ("q", full_q_num_blocks, full_q_indices),
        ):
            if (count is None) != (indices is None):
                raise AssertionError(f"full_{kind}_num_blocks and full_{kind}_indices must be both provided or omitted")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,  # noqa: N803
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """Make a mask from the blocks of each row; those of each column are derived."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        q: tuple[Any, Any] = (None, None)
        full_q: tuple[Any, Any] = (None, None)
        if compute_q_blocks:
            q = _transpose_blocks(kv_num_blocks, kv_indices)
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                full_q = _transpose_blocks(full_kv_num_blocks, full_kv_indices)
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        return cls(
            seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *q, *full_q, size,
            noop_mask if mask_mod is None else mask_mod,
        )  # fmt: skip

    def as_tuple(self, flatten: bool = True) -> tuple:
        """Return all fields that describe the mask, `mask_mod` last."""
        size = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        lengths = self.seq_lengths if flatten else (self.seq_lengths,)
        return (*lengths, *(getattr(self, name) for name in self._TENSORS), *size, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """Return the number of scores, including hidden ones."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Return the percentage of scores in blocks that are not computed."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """Return a dense matrix with 1 for each block that is computed."""
        found = _dense_mask(self.kv_num_blocks, self.kv_indices, self.kv_indices.shape[-1])
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return found
        return found | _dense_mask(self.full_kv_num_blocks, self.full_kv_indices, self.full_kv_indices.shape[-1])

    def to(self, device: Any) -> BlockMask:
        """Move the mask to another device."""
        moved: Any = {n: None if (t := getattr(self, n)) is None else t.to(device) for n in self._TENSORS}
        return BlockMask(self.seq_lengths, **moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def _from_parts(self, change: Callable, lengths: tuple[int, int], mask_mod: MaskMod) -> BlockMask:
        kv = change(self.kv_num_blocks, self.kv_indices)
        full: tuple[Any, Any] = (None, None)
        if self.full_kv_num_blocks is not None:
            full = change(self.full_kv_num_blocks, self.full_kv_indices)
        compute_q = self.q_indices is not None
        return self.from_kv_blocks(kv[0], kv[1], full[0], full[1], self.BLOCK_SIZE, mask_mod, lengths, compute_q)

    def __getitem__(self, index: Any) -> BlockMask:
        given = index if isinstance(index, tuple) else (index,)
        padded = (*given, slice(None), slice(None), slice(None))[:3]
        sizes = self.kv_num_blocks.shape[:3]
        at = tuple(slice(i % n, i % n + 1) if isinstance(i, int) else i for i, n in zip(padded, sizes))
        return self._from_parts(
            lambda count, columns: (count[at], columns[at]), self.seq_lengths, _sliced_mask_mod_error
        )

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Return the upper left corner of the mask, for shorter sequences."""
        rows, columns = (_round_up(n, size) // size for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE))

        def cut(count: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
            dense = _dense_mask(count, indices, indices.shape[-1])
            return _order_blocks(dense[..., :rows, :columns])

        return self._from_parts(cut, (new_q_len, new_kv_len), self.mask_mod)

    def __repr__(self) -> str:
        parts = [f"    {n}={None if (t := getattr(self, n)) is None else t.shape},\n" for n in self._TENSORS]
        return (
            "BlockMask(\n" + "".join(parts) + f"    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n"
            f"    sparsity={self.sparsity():.2f}%,\n    mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}\n)"
        )

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Return a drawing of the blocks for each batch and head, as text."""
        dense = self.to_dense()
        *batch, rows, columns = dense.shape
        limits = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [max(1, -(-n // most)) for n, most in zip((rows, columns), limits)]
        parts = []
        for place, at in enumerate(itertools.product(*(range(n) for n in batch))):
            if place == limit:
                parts += ["...", "To print out more, set BlockMask.to_string(limit=N)",
                             "You can also index (BlockMask[batch, head]) to choose a specific batch or head"]  # fmt: skip
                break
            parts.append(f"{at}\n" + _draw_grid(dense[at].numpy(), *steps))
        return "\n".join(parts)


def _draw_grid(dense: Any, row_step: int, column_step: int) -> str:
    lines = []
    for r in range(0, dense.shape[0], row_step):
        shares = [dense[r : r + row_step, c : c + column_step].mean() for c in range(0, dense.shape[1], column_step)]
        lines.append("".join(("█" if s == 1 else " " if s == 0 else "░") * 2 for s in shares) + "\n")
    return "".join(lines)


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,  # noqa: N803
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """Make the block mask of a mask function. None for B or H broadcasts over it."""
    if _takes_score(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    q_size, kv_size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    padding = (0, _round_up(KV_LEN, kv_size) - KV_LEN, 0, _round_up(Q_LEN, q_size) - Q_LEN)
    padded = flambeau.nn.functional.pad(mask, padding)
    blocks = padded.unflatten(-1, (-1, kv_size)).unflatten(2, (-1, q_size))
    count = blocks.sum(dim=(3, 5))
    whole: tuple[Any, Any] = (None, None)
    shown = count > 0
    if separate_full_blocks:
        full = count == q_size * kv_size
        whole = _order_blocks(full)
        shown = shown & ~full
    return BlockMask.from_kv_blocks(*_order_blocks(shown), *whole, (q_size, kv_size), mask_mod, (Q_LEN, KV_LEN))


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Return softmax(score_mod(query @ key^T * scale)) @ value, where hidden scores (`block_mask`) count as minus infinity.

    With `return_lse` or `return_aux=AuxRequest(lse=True)` also the logarithm of the sum of exponentials of each row.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use"
            " return_aux=AuxRequest(lse=True) instead."
        )
    if return_lse:
        warnings.warn(
            "return_lse is deprecated and will be removed in v2.10. Please use return_aux=AuxRequest(lse=True) instead.",
            FutureWarning,
            stacklevel=2,
        )
    if return_aux is not None and return_aux.max_scores and query.device.type == "cpu":
        raise NotImplementedError("Returning max scores is not supported on CPU/MPS.")
    out, lse, largest = _attention(query, key, value, score_mod, block_mask, scale)
    if return_aux is not None:
        return out, AuxOutput(lse if return_aux.lse else None, largest if return_aux.max_scores else None)
    return (out, lse) if return_lse else out


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, kv_heads = query.shape[1], key.shape[1]
    if not enable_gqa and heads != kv_heads:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={kv_heads}. Try setting"
            " enable_gqa=True for GQA."
        )
    if heads % kv_heads:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={kv_heads}."
        )
    if query.shape[0] != key.shape[0] and block_mask is None:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but got block_mask=None,"
            f" Bq={query.shape[0]}, and Bkv={key.shape[0]}."
        )
    if block_mask is None:
        return
    if block_mask.mask_mod is _sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    lengths = (query.shape[-2], key.shape[-2])
    made_for = tuple(block_mask.shape[-2:])
    if lengths != made_for and block_mask.BLOCK_SIZE[0] < _LARGE_SPARSE_BLOCK_SIZE:
        smaller = any(n > m for n, m in zip(lengths, made_for))
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={lengths[0]} and kv_len={lengths[1]}. "
            + (
                "As the block mask was created for a smaller length than you're using it for, you likely need to create a new"
                " block mask."
                if smaller
                else "Create a mask of the right length, or cut it to its upper left corner with block_mask._adjust(q_len, kv_len)."
            )
        )


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable | None,
    block_mask: BlockMask | None,
    scale: float | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the result, the logarithm of the sum of each row, and the largest score of each row."""
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    if key.shape[0] != query.shape[0]:
        key, value = (t.expand(query.shape[0], *t.shape[1:]) for t in (key, value))
    wide = flambeau.float64 if query.dtype is dt.float64 else flambeau.float32
    scores = (query @ key.mT).to(wide) * (query.shape[-1] ** -0.5 if scale is None else scale)
    positions = _positions(*scores.shape, device=query.device)
    if score_mod is not None:
        scores = _map_over_indices(score_mod, (0,))(scores.to(query.dtype), *positions).to(wide)
    if block_mask is not None and block_mask.mask_mod is not noop_mask:
        shown = _map_over_indices(block_mask.mask_mod, ())(*positions)
        scores = scores.masked_fill(~shown, -math.inf)
    largest = scores.amax(-1)
    nothing = (largest == -math.inf).unsqueeze(-1)  # a row of which everything is hidden gives zeros
    weights = scores.masked_fill(nothing, 0).softmax(-1).masked_fill(nothing, 0)
    return weights.to(query.dtype) @ value, scores.logsumexp(-1), largest
