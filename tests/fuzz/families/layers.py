"""Recurrent layers, attention, normalisation and the utilities around modules."""

from __future__ import annotations

from ..draw import Draw
from .family import family, with_grads

FILL = "[p.data.copy_(((torch.arange(p.numel()) * 7 % 11 - 5) / 8).reshape(p.shape)) for p in m.parameters()]"


@family
def recurrent(draw: Draw) -> list[str]:
    kind = draw.among("RNN", "LSTM", "GRU")
    inner, hidden, depth, length, batch = (draw.number(1, 3) for _ in range(5))
    double = draw.chance(0.2)
    dtype = "float64" if double else "float32"
    flat = draw.chance(0.15)
    first = draw.chance(0.4)
    both = draw.chance(0.5)
    more = f", num_layers={depth}, batch_first={first}, bidirectional={both}" + draw.options(0.3, bias="False")
    more += draw.options(0.3, nonlinearity="'relu'") if kind == "RNN" else ""
    projected = kind == "LSTM" and hidden > 1 and draw.chance(0.4)
    more += f", proj_size={hidden - 1}" if projected else ""
    more += draw.options(0.3, dropout=("0.5", "1.0"))
    lines = [
        f"m = nn.{kind}({inner}, {hidden}{more}, dtype=torch.{dtype}){'.eval()' if draw.chance(0.3) else ''}",
        f"filled = len({FILL})",
    ]
    shape = (length, inner) if flat else (batch, length, inner) if first else (length, batch, inner)
    lines.append(f"a = {draw.tensor(shape, dtype, grad=True)}")
    rows = depth * (2 if both else 1)
    out = hidden - 1 if projected else hidden
    start = ""
    if draw.chance(0.5):
        states = [
            draw.tensor((rows, width) if flat else (rows, batch, width), dtype, grad=True) for width in (out, hidden)
        ]
        lines += [f"h = {states[0]}", f"c = {states[1]}"]
        start = ", (h, c)" if kind == "LSTM" else ", h"
    if draw.chance(0.4) and not flat:
        sizes = [draw.number(1, length) for _ in range(batch)]
        sizes[draw.number(0, batch - 1)] = length
        lines.append(
            f"a = torch.nn.utils.rnn.pack_padded_sequence(a, torch.tensor({sizes}), batch_first={first}, enforce_sorted=False)"
        )
        lines.append(f"result, state = m(a{start})")
        lines.append(
            f"result, sizes = torch.nn.utils.rnn.pad_packed_sequence(result{draw.options(batch_first=str(first), padding_value=2.5, total_length=length + 1)})"
        )
    else:
        lines.append(f"result, state = m(a{start})")
    names = ["a"] * ("packed" not in "".join(lines)) + ["h"] * bool(start) + ["c"] * (kind == "LSTM" and bool(start))
    lines.append(f"slopes = grads(result, *m.parameters(){''.join(', ' + n for n in names)})")
    return lines


@family
def attention(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "bfloat16", "float16")
    batch, heads, keys, width = (draw.number(1, 3) for _ in range(4))
    queries = draw.number(1, 4)
    share = draw.among(1, 1, 2)
    lead = draw.among((batch, heads), (batch, heads), (batch,), (1, batch, heads), ())
    own = (*lead[:-1], lead[-1] * share) if lead and share > 1 else lead
    a, b = draw.tensor((*own, queries, width), dtype, grad=True), draw.tensor((*lead, keys, width), dtype, grad=True)
    c = draw.tensor((*lead, keys, draw.among(width, width + 1)), dtype, grad=True)
    mask_shape = draw.among((queries, keys), (1, keys), (keys,), (*own, queries, keys), (batch, 1, queries, keys))
    mask = draw.among(
        draw.tensor(mask_shape, "bool"),
        draw.tensor(mask_shape, "bool"),
        draw.tensor(mask_shape, dtype),
        f"{draw.tensor(mask_shape, dtype)}.masked_fill({draw.tensor(mask_shape, 'bool')}, -inf)",
    )
    more = draw.options(
        0.35, attn_mask="d", is_causal="True", scale=("0.5", "2.0", "None"), dropout_p=("0.0", "0.5")
    ) + (", enable_gqa=True" if share > 1 or draw.chance(0.1) else "")
    lines = [
        f"a = {a}",
        f"b = {b}",
        f"c = {c}",
        f"d = {mask}",
        f"result = F.scaled_dot_product_attention(a, b, c{more})",
    ]
    return with_grads(draw, lines, "a, b, c", 0.8)


@family
def heads(draw: Draw) -> list[str]:
    """MultiheadAttention and transformer layers with every kind of mask."""
    n, width, batch, length, keys = draw.number(1, 2), 4, draw.number(1, 3), draw.number(1, 4), draw.number(1, 4)
    first = draw.chance(0.5)
    more = f", batch_first={first}" + draw.options(
        0.3, bias="False", add_bias_kv="True", add_zero_attn="True", dropout="0.5", kdim="3", vdim="2"
    )
    if draw.chance(0.4):
        lines = [
            f"m = nn.TransformerEncoderLayer({width}, {n}, 6, dropout=0.0, batch_first={first}{draw.options(0.4, norm_first='True', activation=(repr('gelu'), repr('relu')), bias='False')})"
        ]
        lines += (
            [f"m = nn.TransformerEncoder(m, 2{draw.options(0.3, enable_nested_tensor='False')})"]
            if draw.chance(0.4)
            else []
        )
        lines += [
            f"m = m.{draw.among('eval', 'train')}()",
            f"filled = len({FILL})",
            f"a = {draw.tensor((batch, length, width) if first else (length, batch, width), grad=draw.chance(0.6))}",
        ]
        pad = draw.tensor((batch, length), "bool")
        mask = draw.among(
            draw.tensor((length, length), "bool"), f"nn.Transformer.generate_square_subsequent_mask({length})"
        )
        call = "m(a" + draw.options(0.4, mask=mask, src_key_padding_mask=pad) + ")"
        if "Encoder(" not in "".join(lines):
            call = call.replace("mask=nn", "src_mask=nn").replace(", mask=", ", src_mask=")
        return with_grads(draw, [*lines, f"result = {call}"], "a", 0.8)
    sizes = (width, 3 if "kdim" in more else width, 2 if "vdim" in more else width)
    shapes = [((batch, k, w) if first else (k, batch, w)) for k, w in zip((length, keys, keys), sizes)]
    lines = [f"m = nn.MultiheadAttention({width}, {n}{more}).{draw.among('eval', 'train')}()", f"filled = len({FILL})"]
    lines += [f"{name} = {draw.tensor(shape, grad=draw.chance(0.5))}" for name, shape in zip("abc", shapes)]
    mask = draw.among(
        draw.tensor((length, keys), "bool"), draw.tensor((length, keys)), draw.tensor((batch * n, length, keys), "bool")
    )
    pad = draw.among(draw.tensor((batch, keys), "bool"), draw.tensor((batch, keys)))
    call = f"m(a, b, c{draw.options(0.4, attn_mask=mask, key_padding_mask=pad, need_weights='False', average_attn_weights='False', is_causal='True')})"
    return with_grads(draw, [*lines, f"result = {call}"], "a, b, c", 0.8)


@family
def norms(draw: Draw) -> list[str]:
    dtype = draw.among("float32", "float32", "float64", "bfloat16", "float16")
    shape = (draw.size(3), draw.among(2, 4, 1, 6), *draw.shape(0, 3, 3))
    channels = shape[1]
    a = draw.tensor(shape, dtype, draw.kind(), grad=True)
    one = draw.tensor((channels,), dtype, "positive", grad=True)
    lines = [
        f"a = {a}",
        f"w = {one}",
        f"b = {draw.tensor((channels,), dtype, grad=True)}",
        f"x = {draw.tensor((channels,), dtype)}",
        f"y = {draw.tensor((channels,), dtype, 'positive')}",
    ]
    tail = draw.number(1, len(shape) - 1)
    last = shape[-tail:]
    lines.append(f"z = {draw.tensor(last, dtype, grad=True)}")
    eps = draw.options(0.3, eps=("0.5", "0.0", "1e-3"))
    call = draw.among(
        f"F.batch_norm(a, {draw.among('x, y', 'None, None')}{draw.options(0.6, weight='w', bias='b', training=('True', 'False'), momentum=('0.5', '0.0', '1.0'))}{eps})",
        f"F.batch_norm(a, x, y, w, b, {draw.among(True, False)}{eps})", f"F.instance_norm(a, {draw.among('x, y', 'None, None')}{draw.options(0.6, weight='w', bias='b', use_input_stats=('True', 'False'))}{eps})",
        f"F.group_norm(a, {draw.among(1, 2, channels)}{draw.options(0.6, weight='w', bias='b')}{eps})", f"F.layer_norm(a, {last}{draw.options(0.6, weight='z', bias='z')}{eps})", f"F.rms_norm(a, {last}{draw.options(0.6, weight='z')}{eps})",
        f"F.local_response_norm(a, {draw.number(1, 4)}{draw.options(alpha='0.5', beta='0.3', k='2.0')})", f"F.normalize(a, p={draw.among(1, 2, 'inf', 0.5)}, dim={draw.dim(len(shape))})", f"torch.nn.functional.softmax(a, {draw.dim(len(shape))}{draw.options(0.2, dtype='torch.float64')})",
        f"F.log_softmax(a, {draw.dim(len(shape))})", f"F.softmin(a, {draw.dim(len(shape))})", f"F.glu(a, {draw.dim(len(shape))})", "F.prelu(a, w)", f"F.cosine_similarity(a, a.flip(0), {draw.dim(len(shape))})", f"F.threshold(a, {draw.among(0.5, -1)}, 2)",
        f"F.one_hot(a.abs().long() % 5{draw.options(num_classes=5)})",
    )  # fmt: skip
    return with_grads(draw, [*lines, f"result = {call}"], "a, w, b, z")


@family
def utilities(draw: Draw) -> list[str]:
    """torch.nn.utils."""
    U = "torch.nn.utils."
    shape, other = draw.shape(0, 2), draw.shape(1, 2)
    dtype = draw.among("float32", "float32", "float64", "bfloat16")
    gradient = draw.among(draw.tensor(shape, dtype, draw.among("plain", "special", "plain")), "None")
    lines = [
        f"p = nn.Parameter({draw.tensor(shape, dtype)})",
        f"q = nn.Parameter({draw.tensor(other, draw.among(dtype, 'float32'))})",
    ]
    lines += [f"p.grad = {gradient}", "q.grad = q.detach() * 3"]
    way = draw.number(0, 7)
    kind = draw.among(1, 2, "inf", 0, 0.5, 3)
    if way == 0:
        return [
            *lines,
            f"result = {U}clip_grad_norm_([p, q], {draw.among(1.0, 0.1, 100, 'inf', 0)}, norm_type={kind}{draw.options(0.3, error_if_nonfinite='True', foreach=('True', 'False'))})",
            "g = p.grad",
            "h = q.grad",
        ]
    if way == 1:
        return [
            *lines,
            f"result = {U}clip_grad_value_([p, q], {draw.among(0.5, 1, 0, -1)}{draw.options(foreach=('True', 'False'))})",
            "g = p.grad",
            "h = q.grad",
        ]
    if way == 2:
        return [
            *lines,
            f"result = {U}get_total_norm([p.detach(), q.detach()], {kind}{draw.options(0.3, foreach=('True', 'False'))})",
            f"{U}clip_grads_with_norm_([p, q], 1.0, torch.tensor(2.0))",
            "g = p.grad",
        ]
    if way == 3:
        return [*lines, f"result = {U}parameters_to_vector([p, q])", f"{U}vector_to_parameters(result * 2, [p, q])"]
    maker = draw.among(
        "nn.Linear(3, 4)",
        "nn.Conv2d(2, 4, 2)",
        "nn.Conv1d(2, 3, 2, bias=False)",
        "nn.ConvTranspose2d(2, 3, 2)",
        "nn.Embedding(3, 4)",
        "nn.Linear(3, 3, bias=False)",
    )
    lines = [f"torch.manual_seed({draw.number(0, 3)})", f"m = {maker}", f"filled = len({FILL})"]
    if way == 4:
        name = draw.among(
            "weight_norm",
            "spectral_norm",
            "orthogonal",
            "parametrizations.weight_norm",
            "parametrizations.spectral_norm",
            "parametrizations.orthogonal",
        )
        more = (
            draw.options(dim=draw.among(0, 1, -1))
            if "orth" not in name
            else draw.options(orthogonal_map=("'cayley'", "'matrix_exp'", "'householder'"))
        )
        more += draw.options(0.3, n_power_iterations=draw.number(1, 4)) if "spectral" in name else ""
        lines.append(f"m = {U}{name}(m{more})")
        lines += draw.among(
            [],
            ["w = m.weight.detach()", "m.eval()"],
            [f"{U}remove_{name}(m)"],
            [f"{U}parametrize.remove_parametrizations(m, 'weight'{draw.options(leave_parametrized='False')})"],
            ["m.weight = m.weight.detach() * 2"],
        )
        lines += [
            "result = m.weight",
            "names = [n for n, t in m.named_parameters()]",
            "kept = {k: v.detach() for k, v in m.state_dict().items()}",
        ]
        return [*lines, "slopes = grads(result, *m.parameters())"] if draw.chance(0.5) else lines
    if way == 5:
        name = draw.among(
            "l1_unstructured(m, 'weight', amount=0.4)",
            "ln_structured(m, 'weight', amount=0.5, n=2, dim=0)",
            "random_unstructured(m, 'weight', 3)",
            "random_structured(m, 'weight', 0.5, dim=1)",
            "identity(m, 'weight')",
            "l1_unstructured(m, 'weight', 1)",
        )
        lines += (
            ["torch.manual_seed(3)", f"{U}prune.{name}"]
            + ([f"{U}prune.{name}"] if draw.chance(0.4) else [])
            + ([f"{U}prune.remove(m, 'weight')"] if draw.chance(0.4) else [])
        )
        return [*lines, "result = m.weight.detach()", "kept = {k: v.detach() for k, v in m.state_dict().items()}"]
    if way == 6:
        lines = [
            "c = nn.Conv2d(2, 3, 2).eval()" if draw.chance(0.7) else "c = nn.Conv2d(2, 3, 2, bias=False).eval()",
            "m = nn.BatchNorm2d(3).eval()",
            f"filled = len({FILL})",
            "m.running_var.copy_(torch.tensor([1.0, 2.0, 0.5]))",
            "m.running_mean.copy_(torch.tensor([1.0, -2.0, 0.5]))",
        ]
        return [
            *lines,
            "m.weight.data.abs_()",
            f"m = {U}fusion.fuse_conv_bn_eval(c, m)",
            "result = m.weight.detach() - c.weight.detach() * 0.5",
            "bias = m.bias.detach()",
        ]
    lengths = [draw.number(1, 4) for _ in range(3)]
    made = ", ".join(draw.tensor((n, 2), dtype, grad=True) for n in lengths)
    sort = draw.options(enforce_sorted="False")
    R = f"{U}rnn."
    call = draw.among(
        f"{R}pad_sequence([{made}]{draw.options(batch_first='True', padding_value=1.5, padding_side=(repr('left'), repr('right')))})", f"{R}pack_sequence([{made}]{sort})", f"{R}unpad_sequence({R}pad_sequence([{made}]), torch.tensor({lengths}))",
        f"{R}unpack_sequence({R}pack_sequence([{made}], enforce_sorted=False))", f"{R}pad_packed_sequence({R}pack_sequence([{made}], enforce_sorted=False){draw.options(batch_first='True', padding_value=3, total_length=6)})", f"{R}pack_padded_sequence(torch.ones(4, 3, 2), {lengths}{sort}{draw.options(batch_first='True')})",
    )  # fmt: skip
    return [
        f"result = {call}",
        "parts = [result.data, result.batch_sizes, result.sorted_indices, result.unsorted_indices] if hasattr(result, 'batch_sizes') else []",
    ]
