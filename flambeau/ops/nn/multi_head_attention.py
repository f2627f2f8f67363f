"""multi_head_attention_forward: the computation of nn.MultiheadAttention."""

from __future__ import annotations

import math
from typing import Any

from ...core import dtype as dt
from ...core.tensor import Tensor
from ..linalg.linear import linear
from ..machinery.declare import composite
from ..shape.joining import cat
from ..shape.rearrange import constant_pad_nd
from .attention import scaled_dot_product_attention
from .dropout import dropout


def float_mask(mask: Tensor | None, name: str, target: dt.dtype) -> Tensor | None:
    """Return a mask as numbers to add: True in a bool mask means "ignore"."""
    if mask is None:
        return None
    if mask.dtype == dt.bool_:
        return mask.new_zeros(mask.shape, dtype=target).masked_fill_(mask, -math.inf)
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _project(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of all heads, with as few products as the identities among the inputs allow."""
    width = query.size(-1)
    if key is value and query is key:
        packed = linear(query, weight, bias)
        return packed[..., :width], packed[..., width : 2 * width], packed[..., 2 * width :]
    if key is value:
        q = linear(query, weight[:width], None if bias is None else bias[:width])
        packed = linear(key, weight[width:], None if bias is None else bias[width:])
        return q, packed[..., :width], packed[..., width:]
    w_q, w_k, w_v = weight.chunk(3)
    return _project_separately(query, key, value, w_q, w_k, w_v, bias)


def _project_separately(
    query: Tensor, key: Tensor, value: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each by weights of its own."""
    if bias is None:
        return linear(query, w_q), linear(key, w_k), linear(value, w_v)
    b_q, b_k, b_v = bias.chunk(3)
    return linear(query, w_q, b_q), linear(key, w_k, b_k), linear(value, w_v, b_v)


def _check_batches(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    """Return whether the inputs have a batch dimension, after PyTorch's checks of their ranks."""
    rank = query.dim()
    if rank != 2 and rank != 3:  # noqa: PLR1714  as compiled code says it
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {rank}-D query tensor")
    batched = rank == 3
    kind = "batched" if batched else "unbatched"
    if key.dim() != rank or value.dim() != rank:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key` and `value` to be {rank}-D but found {key.dim()}-D and"
            f" {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != rank - 1:
        raise AssertionError(
            f"For {kind} ({rank}-D) `query`, expected `key_padding_mask` to be `None` or {rank - 1}-D but found"
            f" {padding.dim()}-D tensor instead"
        )
    if mask is not None:
        if mask.dim() != 2 and mask.dim() != 3:  # noqa: PLR1714
            raise AssertionError(
                f"For {kind} ({rank}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D"
                " tensor instead"
            )
        wanted = [heads, query.size(0), key.size(0)]
        if not batched and mask.dim() == 3 and list(mask.shape) != wanted:
            raise AssertionError(
                f"Expected `attn_mask` shape to be {(heads, query.size(0), key.size(0))} but got {mask.shape}"
            )
    return batched


def _checked_mask(mask: Tensor | None, batch: int, heads: int, length: int, source: int) -> Tensor | None:
    """Return the attention mask as (1 or batch, 1 or heads, length, source)."""
    if mask is None:
        return None
    if mask.dim() == 2:
        if mask.size(0) != length or mask.size(1) != source:
            raise RuntimeError(f"The shape of the 2D attn_mask is {mask.shape}, but should be {(length, source)}.")
        return mask.reshape(1, 1, length, source)
    if mask.size(0) != batch * heads or mask.size(1) != length or mask.size(2) != source:
        wanted = (batch * heads, length, source)
        raise RuntimeError(f"The shape of the 3D attn_mask is {mask.shape}, but should be {wanted}.")
    return mask.reshape(batch, heads, length, source)


@composite(namespaces=("nn.functional",), method=False)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The computation of nn.MultiheadAttention: projections, attention of every head, and the output projection.

    query (L, N, E), key and value (S, N, E), or without N. Returns the output and, if asked for, the attention weights.
    """
    batched = _check_batches(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = _with_batch(query, key, value)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    key_padding_mask = float_mask(key_padding_mask, "key_padding_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the hint describes the mask
    else:
        attn_mask = float_mask(attn_mask, "attn_mask", query.dtype)
        is_causal = False
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads != 0:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if q_proj_weight is None or k_proj_weight is None or v_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is True but a projection weight is None")
        if key.size(0) != value.size(0) or key.size(1) != value.size(1):
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
            )
        q, k, v = _project_separately(query, key, value, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias)
    else:
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        q, k, v = _project(query, key, value, in_proj_weight, in_proj_bias)
    attn_mask = _checked_mask(attn_mask, batch, num_heads, length, key.size(0))
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value")
        k = cat([k, bias_k.expand(1, batch, width)], 0)
        v = cat([v, bias_v.expand(1, batch, width)], 0)
        attn_mask, key_padding_mask = _with_key(attn_mask), _with_key(key_padding_mask)
    elif bias_k is not None or bias_v is not None:
        raise AssertionError("bias_k and bias_v must both be given or both be None")
    q = _split_heads(q, batch, num_heads)
    k = _split_heads(k, batch, num_heads) if static_k is None else _static(static_k, "static_k", q)
    v = _split_heads(v, batch, num_heads) if static_v is None else _static(static_v, "static_v", q)
    if add_zero_attn:
        zeros = k.new_zeros([k.size(0), k.size(1), 1, k.size(3)])
        k, v = cat([k, zeros], 2), cat([v, zeros], 2)
        attn_mask, key_padding_mask = _with_key(attn_mask), _with_key(key_padding_mask)
    mask = _merged(attn_mask, key_padding_mask, batch, k.size(2))
    output, weights = _attend(q, k, v, mask, dropout_p if training else 0.0, is_causal, need_weights)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    output = output.permute(2, 0, 1, 3).reshape(length * batch, width)
    output = linear(output, out_proj_weight, out_proj_bias).reshape(length, batch, out_proj_weight.size(0))
    if not batched:
        output = output.squeeze(1)
        if weights is not None:
            weights = weights.squeeze(0)
    return output, weights


def _with_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs with a batch of one; inputs that are the same tensor remain so."""
    same_key, same_value = key is query, value is key
    query = query.unsqueeze(1)
    key = query if same_key else key.unsqueeze(1)
    return query, key, key if same_value else value.unsqueeze(1)


def _split_heads(t: Tensor, batch: int, heads: int) -> Tensor:
    """Reshape (rows, batch, width) to (batch, heads, rows, features of one head)."""
    return t.reshape(t.size(0), batch, heads, t.size(-1) // heads).permute(1, 2, 0, 3)


def _with_key(mask: Tensor | None) -> Tensor | None:
    """Return a mask with one more key, which is never hidden."""
    return None if mask is None else constant_pad_nd(mask, [0, 1])


def _merged(mask: Tensor | None, padding: Tensor | None, batch: int, source: int) -> Tensor | None:
    """Merge both masks to one that broadcasts to (batch, heads, rows, source)."""
    if padding is None:
        return mask
    if padding.size(0) != batch or padding.size(1) != source:
        raise AssertionError(f"expecting key_padding_mask shape of {(batch, source)}, but got {padding.shape}")
    hidden = padding.reshape(batch, 1, 1, source)
    return hidden if mask is None else mask + hidden


def _attend(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, causal: bool, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the result of all heads and, if requested, the weights."""
    if not need_weights:
        return scaled_dot_product_attention(q, k, v, mask, p, causal), None
    scores = (q * (1.0 / math.sqrt(q.size(3)))).matmul(k.transpose(-2, -1))
    if mask is not None:
        scores = scores + mask.to(scores.dtype)
    weights = scores.softmax(-1)  # unlike those inside attention, a row that sees nothing is nan, as in PyTorch
    if p > 0.0:
        weights = dropout(weights, p, True)
    return weights.matmul(v), weights


def _static(t: Tensor, name: str, q: Tensor) -> Tensor:
    """Return keys or values that are given as (batch * heads, rows, features) instead of projected."""
    batch, heads, _, features = q.shape
    if t.size(0) != batch * heads or t.size(2) != features:
        raise AssertionError(f"expecting {name} of shape ({batch * heads}, *, {features}), but got {t.shape}")
    return t.reshape(batch, heads, t.size(1), features)


# -- in graphs of PyTorch's operators ---------------------------------------------------------------------------------------


@multi_head_attention_forward.op.as_aten
def _(recorder: Any, *args: Any, **kwargs: Any) -> Any:
    given = multi_head_attention_forward.op.bind(args, kwargs)
    rare = ("bias_k", "bias_v", "static_k", "static_v", "q_proj_weight")
    if any(given[n] is not None for n in rare) or given["add_zero_attn"] or given["query"].dim() != 3:
        return recorder.again(multi_head_attention_forward, args, kwargs)
    return _InAten(recorder.aten, given).run()


class _InAten:
    """Recording of one call as calls of PyTorch's operators, those of PyTorch's own function. `given` are its arguments by name."""

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
        """Return the output projection of the heads' results."""
        flat = self.aten.reshape.default(heads, [self.length * self.batch, self.width])
        found = self.aten.linear.default(flat, self.given["out_proj_weight"], self.given["out_proj_bias"])
        return self.aten.view.default(found, [self.length, self.batch, found.size(1)])

    def projected(self) -> list[Tensor]:
        """Return queries, keys and values: by one product as far as they are one tensor."""
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
        """Reshape (rows, batch, width) to (batch * heads, rows, features of one head)."""
        return self.aten.transpose.int(
            self.aten.view.default(t, [t.size(0), self.batch * self.heads, self.width // self.heads]), 0, 1
        )

    def mask(self) -> Any:
        """Return the masks of attention and of padding as one, in numbers to add."""
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
