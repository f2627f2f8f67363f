"""multi_head_attention_forward: what nn.MultiheadAttention computes."""

from __future__ import annotations

import math
from typing import Any

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..linalg.matmul import linear
from ..machinery.declare import composite
from ..shape.joining import cat
from .attention import scaled_dot_product_attention
from .dropout import dropout


def _float_mask(mask: Any, name: str, target: dt.dtype) -> Any:
    """A mask as numbers to add: True in a bool mask means "ignore"."""
    if mask is None:
        return None
    if mask.dtype is not dt.bool_ and not mask.dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if mask.dtype is dt.bool_:
        return mask.new_zeros(mask.shape, dtype=target).masked_fill_(mask, -math.inf)
    return mask


def _project(query: Any, key: Any, value: Any, weight: Any, bias: Any, separate: tuple) -> tuple[Any, Any, Any]:
    """Queries, keys and values of all heads, with as few products as the identities among the inputs allow."""
    width = query.shape[-1]
    if separate:
        biases = (None, None, None) if bias is None else bias.chunk(3)
        q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), separate, biases))
        return q, k, v
    if key is value and query is key:
        packed = linear(query, weight, bias)
        return packed[..., :width], packed[..., width : 2 * width], packed[..., 2 * width :]
    weights = weight.split(width)
    biases = (None, None, None) if bias is None else bias.split(width)
    if key is value:
        packed = linear(key, weight[width:], None if bias is None else bias[width:])
        return linear(query, weights[0], biases[0]), packed[..., :width], packed[..., width:]
    q, k, v = (linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    return q, k, v


def _check_batches(query: Tensor, key: Tensor, value: Tensor, padding: Any, mask: Any, heads: int) -> bool:
    """Whether the inputs have a batch dimension, after PyTorch's checks of their ranks."""
    rank = len(query.shape)
    if rank not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    batched = rank == 3
    kind = "batched" if batched else "unbatched"
    if len(key.shape) != rank or len(value.shape) != rank:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key` and `value` to be {rank}-D but found {len(key.shape)}-D and"
            f" {len(value.shape)}-D tensors respectively"
        )
    if padding is not None and len(padding.shape) != rank - 1:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but found"
            f" {len(padding.shape)}-D tensor instead"
        )
    if mask is not None and len(mask.shape) not in (2, 3):
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {len(mask.shape)}-D"
            " tensor instead"
        )
    if (
        not batched
        and mask is not None
        and len(mask.shape) == 3
        and mask.shape != (heads, query.shape[0], key.shape[0])
    ):
        raise AssertionError(
            f"Expected `attn_mask` shape to be {(heads, query.shape[0], key.shape[0])} but got {tuple(mask.shape)}"
        )
    return batched


def _checked_mask(mask: Any, batch: int, heads: int, length: int, source: int) -> Any:
    """The attention mask as (1 or batch * heads, length, source)."""
    if mask is None:
        return None
    if len(mask.shape) == 2:
        expected: tuple[int, ...] = (length, source)
        if mask.shape != expected:
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {expected}.")
        return mask.unsqueeze(0)
    expected = (batch * heads, length, source)
    if mask.shape != expected:
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {expected}.")
    return mask


@composite(namespaces=("nn.functional",), method=False)
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """What nn.MultiheadAttention computes: projections, attention of every head, and the output projection.

    query (L, N, E), key and value (S, N, E), or without N. Returns the output and, if asked for, the attention weights.
    """
    batched = _check_batches(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _with_batch(query, key, value)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    key_padding_mask = _float_mask(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the hint says what the mask holds
    else:
        attn_mask = _float_mask(attn_mask, "attn_mask", query.dtype)
        is_causal = False
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    _check_projections(
        key, value, use_separate_proj_weight, in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight
    )
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else ()
    q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias, separate)
    masks = Masks(_checked_mask(attn_mask, batch, num_heads, length, key.shape[0]), key_padding_mask)
    if bias_k is not None and bias_v is not None:
        k, v = (cat([t, extra.expand(1, batch, width)], 0) for t, extra in ((k, bias_k), (v, bias_v)))
        masks.add_key()
    elif bias_k is not None or bias_v is not None:
        raise AssertionError("bias_k and bias_v must both be given or both be None")
    q = _split_heads(q, batch, num_heads)
    k = _split_heads(k, batch, num_heads) if static_k is None else _static(static_k, "static_k", q)
    v = _split_heads(v, batch, num_heads) if static_v is None else _static(static_v, "static_v", q)
    if add_zero_attn:
        zeros = k.new_zeros((*k.shape[:2], 1, k.shape[3]))
        k, v = cat([k, zeros], 2), cat([v, zeros], 2)
        masks.add_key()
    mask = masks.merged(batch, num_heads, k.shape[2])
    output, weights = _attend(q, k, v, mask, dropout_p if training else 0.0, is_causal, need_weights)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    output = output.permute(2, 0, 1, 3).reshape(length * batch, width)
    output = linear(output, out_proj_weight, out_proj_bias).reshape(length, batch, out_proj_weight.shape[0])
    if batched:
        return output, weights
    return output.squeeze(1), None if weights is None else weights.squeeze(0)


def _with_batch(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """Inputs with a batch of one; what was one tensor stays one."""
    same_key, same_value = key is query, value is key
    query = query.unsqueeze(1)
    key = query if same_key else key.unsqueeze(1)
    return query, key, key if same_value else value.unsqueeze(1)


def _split_heads(t: Any, batch: int, heads: int) -> Any:
    """(rows, batch, width) as (batch, heads, rows, features of one head)."""
    return t.reshape(t.shape[0], batch, heads, t.shape[-1] // heads).permute(1, 2, 0, 3)


class Masks:
    """The attention mask and the padding mask, both as numbers to add, until they are merged."""

    def __init__(self, attention: Any, padding: Any):
        self.attention, self.padding = attention, padding

    def add_key(self) -> None:
        """One more key that nothing hides."""
        self.attention, self.padding = (
            None if m is None else cat([m, m.new_zeros((*m.shape[:-1], 1))], -1) for m in (self.attention, self.padding)
        )

    def merged(self, batch: int, heads: int, source: int) -> Any:
        """One mask that broadcasts to (batch, heads, rows, source)."""
        mask = self.attention
        if mask is not None:
            lead = (1, 1) if mask.shape[0] == 1 else (batch, heads)
            mask = mask.reshape(*lead, *mask.shape[1:])
        if self.padding is None:
            return mask
        if self.padding.shape != (batch, source):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, source)}, but got {tuple(self.padding.shape)}"
            )
        hidden = self.padding.reshape(batch, 1, 1, source)
        return hidden if mask is None else mask + hidden


def _attend(q: Any, k: Any, v: Any, mask: Any, p: float, causal: bool, need_weights: bool) -> tuple[Any, Any]:
    """The result of all heads and, if asked for, the weights."""
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, p, causal), None
    weights: Any = _plain_softmax(q, k, mask, 1 / math.sqrt(q.shape[3]))
    weights = dropout(weights, p, True) if p > 0 else weights
    return weights.matmul(v), weights


def _plain_softmax(q: Any, k: Any, mask: Any, scale: float) -> Tensor:
    """Weights to hand out: unlike those inside attention, a row that sees nothing is nan, as in PyTorch."""
    scores = (q * scale).matmul(k.transpose(-2, -1))
    return (scores if mask is None else scores + mask.to(scores.dtype)).softmax(-1)


def _static(t: Any, name: str, q: Any) -> Any:
    """Keys or values that are given as (batch * heads, rows, features) instead of projected."""
    batch, heads, _, features = q.shape
    if t.shape[0] != batch * heads or t.shape[2] != features:
        raise AssertionError(f"expecting {name} of shape ({batch * heads}, *, {features}), but got {tuple(t.shape)}")
    return t.reshape(batch, heads, *t.shape[1:])


def _check_projections(
    key: Any, value: Any, separate: bool, weight: Any, q_weight: Any, k_weight: Any, v_weight: Any
) -> None:
    if separate:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's {tuple(value.shape[:2])}"
            )
        if q_weight is None or k_weight is None or v_weight is None:
            raise AssertionError("use_separate_proj_weight is True but a projection weight is None")
    else:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}")
        if weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")


# -- in graphs of PyTorch's operators ---------------------------------------------------------------------------------------


@multi_head_attention_forward.op.as_aten
def _(recorder: Any, *args: Any, **kwargs: Any) -> Any:
    given = multi_head_attention_forward.op.bind(args, kwargs)
    rare = ("bias_k", "bias_v", "static_k", "static_v", "q_proj_weight")
    if any(given[n] is not None for n in rare) or given["add_zero_attn"] or given["query"].dim() != 3:
        return recorder.again(multi_head_attention_forward, args, kwargs)
    return _InAten(recorder.aten, given).run()


class _InAten:
    """One call as calls of PyTorch's operators: those that PyTorch's own function makes. `given` are its arguments by name."""

    def __init__(self, aten: Any, given: dict[str, Any]) -> None:
        self.aten, self.given = aten, given
        self.query, self.key, self.value = given["query"], given["key"], given["value"]
        self.length, self.batch, self.width = self.query.shape
        self.heads, self.source = given["num_heads"], self.key.shape[0]

    def run(self) -> tuple[Tensor, Tensor | None]:
        causal = self.given["is_causal"]
        weights_wanted = self.given["need_weights"]
        hint = causal and self.given["key_padding_mask"] is None and not weights_wanted
        mask = None if hint else self.mask()
        q, k, v = (self.split(t) for t in self.projected())
        p = self.given["dropout_p"] if self.given["training"] else 0.0
        if weights_wanted:
            return self.with_weights(q, k, v, mask, p)
        if mask is not None:
            alone = mask.size(0) == 1 and mask.dim() == 3
            mask = self.aten.unsqueeze.default(mask, 0) if alone else self.aten.view.default(mask, [self.batch, self.heads, -1, self.source])  # fmt: skip
        shape = [self.batch, self.heads, -1, self.width // self.heads]
        q, k, v = (self.aten.view.default(t, [*shape[:2], t.size(1), shape[3]]) for t in (q, k, v))
        out = self.aten.scaled_dot_product_attention.default(q, k, v, mask, p, hint)
        return self.out(self.aten.permute.default(out, [2, 0, 1, 3])), None

    def with_weights(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, p: float) -> tuple[Tensor, Tensor]:
        scaled = self.aten.mul.Tensor(q, math.sqrt(1.0 / q.size(-1)))
        turned = self.aten.transpose.int(k, -2, -1)
        scores = (
            self.aten.bmm.default(scaled, turned) if mask is None else self.aten.baddbmm.default(mask, scaled, turned)
        )
        weights = self.aten.softmax.int(scores, -1)
        weights = self.aten.dropout.default(weights, p, True) if p > 0 else weights
        out = self.out(self.aten.transpose.int(self.aten.bmm.default(weights, v), 0, 1))
        weights = self.aten.view.default(weights, [self.batch, self.heads, self.length, self.source])
        return out, self.aten.mean.dim(weights, [1]) if self.given["average_attn_weights"] else weights

    def out(self, heads: Tensor) -> Tensor:
        """The output projection of what the heads found."""
        flat = self.aten.reshape.default(heads, [self.length * self.batch, self.width])
        found = self.aten.linear.default(flat, self.given["out_proj_weight"], self.given["out_proj_bias"])
        return self.aten.view.default(found, [self.length, self.batch, found.size(1)])

    def projected(self) -> list[Tensor]:
        """Queries, keys and values: of one tensor by one product, as far as they are one."""
        weight, bias = self.given["in_proj_weight"], self.given["in_proj_bias"]
        if self.key is self.value and self.query is self.key:
            return self.taken_apart(self.aten.linear.default(self.query, weight, bias), 3)
        if self.key is self.value:
            parts = [self.width, 2 * self.width]
            w = self.aten.split_with_sizes.default(weight, parts)
            b = None if bias is None else self.aten.split_with_sizes.default(bias, parts)
            both = self.aten.linear.default(self.key, w[1], None if b is None else b[1])
            return [self.aten.linear.default(self.query, w[0], None if b is None else b[0]), *self.taken_apart(both, 2)]
        ws = self.aten.chunk.default(weight, 3)
        bs = None if bias is None else self.aten.chunk.default(bias, 3)
        given = (self.query, self.key, self.value)
        return [self.aten.linear.default(t, ws[i], None if bs is None else bs[i]) for i, t in enumerate(given)]

    def taken_apart(self, together: Tensor, count: int) -> list[Tensor]:
        rows = self.aten.unsqueeze.default(self.aten.unflatten.int(together, -1, [count, self.width]), 0)
        turned = self.aten.contiguous.default(self.aten.squeeze.dim(self.aten.transpose.int(rows, 0, -2), -2))
        return [self.aten.select.int(turned, 0, i) for i in range(count)]

    def split(self, t: Tensor) -> Tensor:
        """(rows, batch, width) as (batch * heads, rows, features of one head)."""
        return self.aten.transpose.int(
            self.aten.view.default(t, [t.size(0), self.batch * self.heads, self.width // self.heads]), 0, 1
        )

    def mask(self) -> Any:
        """The masks of attention and of padding as one, in numbers to add."""
        found, padding = (self.as_numbers(self.given[n]) for n in ("attn_mask", "key_padding_mask"))
        if found is not None and found.dim() == 2:
            found = self.aten.unsqueeze.default(found, 0)
        if padding is None:
            return found
        hidden = self.aten.expand.default(
            self.aten.view.default(padding, [self.batch, 1, 1, self.source]), [-1, self.heads, -1, -1]
        )
        hidden = self.aten.reshape.default(hidden, [self.batch * self.heads, 1, self.source])
        return hidden if found is None else self.aten.add.Tensor(found, hidden)

    def as_numbers(self, mask: Any) -> Any:
        if mask is None or mask.dtype != dt.bool_:
            return mask
        zeros = self.aten.zeros_like.default(mask, dtype=self.query.dtype, pin_memory=False)
        return self.aten.masked_fill_.Scalar(zeros, mask, -math.inf)
