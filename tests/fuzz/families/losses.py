"""Losses and bags of embeddings with all their options."""

from __future__ import annotations

from ..draw import Draw
from .family import family, with_grads

REDUCTION = ("'none'", "'mean'", "'sum'", "'mean'")
PAIRS = {
    "mse_loss": {}, "l1_loss": {}, "smooth_l1_loss": {"beta": ("0.5", "1.0", "0.0", "2")}, "huber_loss": {"delta": ("0.5", "2.0")},
    "kl_div": {"log_target": "True"}, "soft_margin_loss": {}, "poisson_nll_loss": {"log_input": "False", "full": "True"},
    "binary_cross_entropy_with_logits": {"weight": "w", "pos_weight": "w"}, "hinge_embedding_loss": {"margin": "0.5"},
    "multilabel_soft_margin_loss": {"weight": "w"}, "binary_cross_entropy": {"weight": "w"},
}  # fmt: skip


@family
def losses(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "bfloat16", "float16")
    return draw.among(_pairs, _classes, _margins, _sequences)(draw, dtype)


def _pairs(draw: Draw, dtype: str) -> list[str]:
    name = draw.among(*PAIRS)
    shape = draw.shape(0, 3)
    other = shape if draw.chance(0.8) else draw.broadcast(shape)
    a, b = (
        draw.tensor(shape, dtype, draw.kind(), grad=True),
        draw.tensor(other, dtype, draw.kind(), grad=draw.chance(0.5)),
    )
    if name == "binary_cross_entropy":
        a = f"({a}).detach().abs().clamp(max=1).requires_grad_()"
        b = f"({b}).detach().abs().clamp(max=1)"
    lines = [f"a = {a}", f"b = {b}", f"w = {draw.tensor(draw.broadcast(shape), dtype)}"]
    more = draw.options(0.8, reduction=REDUCTION) + draw.options(0.4, **PAIRS[name])
    if draw.chance(0.15):
        v = draw.tensor(shape, dtype, "positive", grad=True)
        return with_grads(
            draw,
            [
                *lines,
                f"v = {v}",
                f"result = F.gaussian_nll_loss(a, b, v{draw.options(0.8, reduction=REDUCTION, full='True')})",
            ],
            "a, v",
        )
    return with_grads(draw, [*lines, f"result = F.{name}(a, b{more})"], "a")


def _classes(draw: Draw, dtype: str) -> list[str]:
    classes, batch, rest = draw.number(1, 4), draw.size(3), draw.shape(0, 2, 3)
    flat = draw.chance(0.15)
    shape = (classes,) if flat else (batch, classes, *rest)
    target = () if flat else (batch, *rest)
    a = draw.tensor(shape, dtype, draw.kind(), grad=True)
    b = draw.tensor(target, "int64", "plain").replace("-", "") + f" % {classes}"
    ignored = draw.options(0.4, ignore_index=draw.among(0, 1, -100, -1))
    if draw.chance(0.2):
        b = draw.tensor(target, draw.among("int64", "int64", "uint8", "int32"))
    more = draw.options(0.8, reduction=REDUCTION) + draw.options(0.4, weight="w")
    lines = [f"a = {a}", f"b = {b}", f"w = {draw.tensor((classes + draw.chance(0.03),), dtype, 'positive')}"]
    if draw.chance(0.5):
        return with_grads(draw, [*lines, f"result = F.nll_loss(a, b{ignored}{more})"], "a")
    more += draw.options(0.4, label_smoothing=("0.1", "1.0", "0.5"))
    if draw.chance(0.25):
        lines[1], ignored = f"b = {draw.tensor(shape, dtype, 'positive', grad=draw.chance(0.5))}", ""
    return with_grads(draw, [*lines, f"result = F.cross_entropy(a, b{ignored}{more})"], "a")


def _margins(draw: Draw, dtype: str) -> list[str]:
    batch, classes = draw.size(3), draw.number(1, 4)
    shape = (batch, classes) if draw.chance(0.8) else (classes,)
    reduction = draw.options(0.8, reduction=REDUCTION)
    a, b, c = (draw.tensor(shape, dtype, grad=True) for _ in range(3))
    index = f"{draw.tensor(shape[:-1], 'int64', 'positive')} % {classes}"
    ways = {
        f"F.multi_margin_loss(a, t{draw.options(0.3, p=('1', '2'), margin='0.5', weight='w')}{reduction})": index,
        f"F.multilabel_margin_loss(a, t{reduction})": f"{draw.tensor(shape, 'int64')} % {classes + 1} - 1",
        f"F.cosine_embedding_loss(a, b, t{draw.options(margin='0.3')}{reduction})": f"{draw.tensor(shape[:-1], 'int64')} % 2 * 2 - 1",
        f"F.margin_ranking_loss(a, b, t{draw.options(margin='0.3')}{reduction})": f"{draw.tensor(shape, dtype)}.sign()",
        f"F.triplet_margin_loss(a, b, c{draw.options(margin='0.3', p=('1', '3', '0.5'), swap='True')}{reduction})": "0",
        "F.pairwise_distance(a, b, keepdim=True)": "0",
        f"F.cosine_similarity(a, b, dim={draw.dim(len(shape))})": "0",
    }
    call = draw.among(*ways)
    lines = [
        f"a = {a}",
        f"b = {b}",
        f"c = {c}",
        f"t = {ways[call]}",
        f"w = {draw.tensor((classes,), dtype, 'positive')}",
    ]
    return with_grads(draw, [*lines, f"result = {call}"], "a" if "multi" in call else "a, b")


def _sequences(draw: Draw, dtype: str) -> list[str]:
    time, batch, classes, longest = draw.number(1, 5), draw.number(1, 3), draw.number(2, 4), draw.number(1, 3)
    dtype = draw.among("float32", "float64", "float32")
    blank = draw.number(0, classes - 1)
    a = f"{draw.dense((time, batch, classes), dtype)}.log_softmax(-1).detach().requires_grad_()"
    lengths = [draw.number(0, longest) for _ in range(batch)]
    allowed = [c for c in range(classes) if c != blank]
    labels = [[draw.among(*allowed) for _ in range(longest)] for _ in range(batch)]
    flat = draw.chance(0.3)
    target = [c for row, n in zip(labels, lengths) for c in row[:n]] if flat else labels
    seen = [draw.number(max(time - 2, 0), time) for _ in range(batch)]
    given = f"torch.tensor({seen}), torch.tensor({lengths})" if draw.chance(0.5) else f"{tuple(seen)}, {tuple(lengths)}"
    more = draw.options(0.8, reduction=REDUCTION) + draw.options(0.5, zero_infinity="True")
    lines = [f"a = {a}", f"b = torch.tensor({target}, dtype=torch.{draw.among('int64', 'int32')})"]
    return with_grads(draw, [*lines, f"result = F.ctc_loss(a, b, {given}, blank={blank}{more})"], "a")


@family
def embeddings(draw: Draw) -> list[str]:
    rows, width, count = draw.number(1, 5), draw.number(1, 3), draw.number(0, 6)
    dtype, index = draw.among("float32", "float32", "float64", "bfloat16", "float16"), draw.among("int64", "int32")
    indices = [draw.number(0, rows - 1) for _ in range(count)]
    pad = draw.options(0.3, padding_idx=draw.number(-rows, rows - 1))
    a = draw.tensor((rows, width), dtype, draw.kind(), grad=True)
    lines = [f"a = {a}", f"b = torch.tensor({indices}, dtype=torch.{index})"]
    norms = draw.options(0.2, max_norm="1.0", norm_type=("1.0", "inf"), scale_grad_by_freq="True")
    if draw.chance(0.3):
        lines[0] = lines[0].replace(".requires_grad_()", "") if "max_norm" in norms else lines[0]
        return with_grads(
            draw, [*lines, f"result = F.embedding(b, a{pad}{norms}{draw.options(0.2, sparse='True')})"], "a"
        )
    offsets = sorted(draw.number(0, count) for _ in range(draw.number(0, 3)))
    last = draw.chance(0.3)
    bags = f"torch.tensor({[0, *offsets, *([count] if last else [])]}, dtype=torch.{index})"
    mode = draw.among("'sum'", "'mean'", "'max'")
    more = f", mode={mode}" + pad + draw.options(0.15, max_norm="1.0", scale_grad_by_freq="True", sparse="True")
    more += ", include_last_offset=True" if last else ""
    lines.append(f"c = {draw.tensor((count,), dtype, grad=True)}")
    if mode == "'sum'" and draw.chance(0.5):
        return with_grads(draw, [*lines, f"result = F.embedding_bag(b, a, {bags}, per_sample_weights=c{more})"], "a, c")
    return with_grads(draw, [*lines, f"result = F.embedding_bag(b, a, {bags}{more})"], "a")
