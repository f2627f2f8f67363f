"""Whole mixed-precision programs, as people write them, under both libraries: the losses agree within the lower precision."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from answers import judge

import flambeau

real = judge("torch")


def _block(torch, width, heads):
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
            self.c_attn = nn.Linear(width, 3 * width, bias=False)
            self.c_proj = nn.Linear(width, width, bias=False)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.0)
            )

        def forward(self, x):
            b, t, c = x.size()
            q, k, v = (
                part.view(b, t, heads, c // heads).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(c, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.mlp(self.ln_2(x))

    return Block()


def _gpt(torch, vocabulary=32, length=16, width=32, layers=2):
    nn, F = torch.nn, torch.nn.functional

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.h = nn.ModuleList([_block(torch, width, 4) for _ in range(layers)])
            self.ln_f = nn.LayerNorm(width)
            self.lm_head = nn.Linear(width, vocabulary, bias=False)
            self.wte.weight = self.lm_head.weight  # tied
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, mean=0.0, std=0.02)

        def forward(self, idx, targets=None):
            x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
            for block in self.h:
                x = block(x)
            x = self.ln_f(x)
            if targets is None:
                return self.lm_head(x[:, [-1], :]), None
            logits = self.lm_head(x)
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)

        @torch.no_grad()
        def generate(self, idx, count):
            for _ in range(count):
                logits, _ = self(idx[:, -length:])
                idx = torch.cat((idx, logits[:, -1, :].argmax(-1, keepdim=True)), dim=1)
            return idx

    return GPT()


def _train_gpt(torch, dtype):
    torch.manual_seed(0)
    model = _gpt(torch)
    ctx = torch.amp.autocast(device_type="cpu", dtype=getattr(torch, dtype)) if dtype != "float32" else nullcontext()
    scaler = torch.amp.GradScaler("cpu", enabled=dtype == "float16")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1)
    data = torch.from_numpy(np.random.default_rng(0).integers(0, 32, (4, 17)))
    losses = []
    for _ in range(12):
        for part in data.chunk(2):  # gradient accumulation
            with ctx:
                logits, loss = model(part[:, :-1], part[:, 1:])
                loss = loss / 2
            scaler.scale(loss).backward()
        losses.append(loss.item())
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    with torch.no_grad(), ctx:
        text = model.generate(data[:1, :4], 3)
    return losses, str(logits.dtype), text.shape, scaler.get_scale()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gpt(dtype):
    single = _train_gpt(real, "float32")[0]
    (theirs, *facts), (ours, *our_facts) = _train_gpt(real, dtype), _train_gpt(flambeau, dtype)
    assert our_facts == facts and facts[0] == f"torch.{dtype}"
    assert theirs != single, "autocast changed nothing"
    np.testing.assert_allclose(ours, theirs, rtol=5e-3 if dtype == "bfloat16" else 1e-3)


def _recipe(torch, dtype, use_amp):
    """The loop of PyTorch's recipe on automatic mixed precision: a row of linear layers, a squared error, a scaler."""
    torch.manual_seed(0)
    layers = []
    for _ in range(3):
        layers += [torch.nn.Linear(64, 64), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(64, 64))
    data, targets = ([torch.randn(32, 64) for _ in range(4)] for _ in range(2))
    loss_fn, opt = torch.nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", enabled=use_amp)
    seen, losses = set(), []
    for _ in range(2):
        for x, y in zip(data, targets):
            with torch.autocast(device_type="cpu", dtype=getattr(torch, dtype), enabled=use_amp):
                output = net(x)
                loss = loss_fn(output, y)
            seen.add((str(output.dtype), str(loss.dtype)))
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            losses.append(loss.item())
    checkpoint = {"model": net.state_dict(), "optimizer": opt.state_dict(), "scaler": scaler.state_dict()}
    return losses, seen, checkpoint["scaler"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("use_amp", [True, False])
def test_recipe(dtype, use_amp):
    theirs, ours = _recipe(real, dtype, use_amp), _recipe(flambeau, dtype, use_amp)
    assert ours[1:] == theirs[1:]
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-3 if use_amp else 1e-5)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_parts_run_again_in_the_same_precision(use_reentrant):
    def scenario(torch, checkpoint):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
        x = torch.ones(3, 4, requires_grad=True)
        with torch.autocast("cpu"):
            y = checkpoint(model, x, use_reentrant=use_reentrant)
        y.float().sum().backward()
        return y.dtype, x.grad, model[0].weight.grad.dtype

    ours = scenario(flambeau, flambeau.utils.checkpoint.checkpoint)
    theirs = scenario(real, real.utils.checkpoint.checkpoint)
    assert [str(ours[0]), str(ours[2])] == [str(theirs[0]), str(theirs[2])]
    np.testing.assert_allclose(ours[1].numpy(), theirs[1].numpy(), rtol=2e-2)
