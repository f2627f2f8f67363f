"""Layers whose Python code is more than TorchScript can read: their methods as TorchScript programs, and attributes they need.

Each class below holds the methods for the layer of the same name (`_of` names others); the methods are compiled, never run as Python.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, List, Optional, Tuple  # noqa: UP035  the spelling of TorchScript

import flambeau as torch
from flambeau import Tensor, nn
from flambeau.nn import functional as F

from .forms import aten
from .types import TENSOR, ListType, Type

# ruff: noqa: UP006, UP007, UP045, SIM102
# mypy: ignore-errors


def extra_attributes(module: Any) -> dict[str, tuple[Type, Any]]:
    """Attributes that the compiled form of a layer has and the Python one computes."""
    if isinstance(module, nn.RNNBase):
        return {"_flat_weights": (ListType(TENSOR), list(module._flat_weights))}
    return {}


class MultiheadAttention:
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Optional[Tensor] = None,
        need_weights: bool = True,
        attn_mask: Optional[Tensor] = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Tuple[Tensor, Optional[Tensor]]:
        turned = self.batch_first and query.dim() == 3
        if turned:
            query = query.transpose(1, 0)
            key = key.transpose(1, 0)
            value = value.transpose(1, 0)
        if self._qkv_same_embed_dim:
            attn_output, attn_output_weights = F.multi_head_attention_forward(
                query,
                key,
                value,
                self.embed_dim,
                self.num_heads,
                self.in_proj_weight,
                self.in_proj_bias,
                self.bias_k,
                self.bias_v,
                self.add_zero_attn,
                self.dropout,
                self.out_proj.weight,
                self.out_proj.bias,
                training=self.training,
                key_padding_mask=key_padding_mask,
                need_weights=need_weights,
                attn_mask=attn_mask,
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
            )
        else:
            attn_output, attn_output_weights = F.multi_head_attention_forward(
                query,
                key,
                value,
                self.embed_dim,
                self.num_heads,
                self.in_proj_weight,
                self.in_proj_bias,
                self.bias_k,
                self.bias_v,
                self.add_zero_attn,
                self.dropout,
                self.out_proj.weight,
                self.out_proj.bias,
                training=self.training,
                key_padding_mask=key_padding_mask,
                need_weights=need_weights,
                attn_mask=attn_mask,
                use_separate_proj_weight=True,
                q_proj_weight=self.q_proj_weight,
                k_proj_weight=self.k_proj_weight,
                v_proj_weight=self.v_proj_weight,
                average_attn_weights=average_attn_weights,
                is_causal=is_causal,
            )
        if turned:
            return attn_output.transpose(1, 0), attn_output_weights
        return attn_output, attn_output_weights


class TransformerEncoderLayer:
    def forward(
        self,
        src: Tensor,
        src_mask: Optional[Tensor] = None,
        src_key_padding_mask: Optional[Tensor] = None,
        is_causal: bool = False,
    ) -> Tensor:
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), src_mask, src_key_padding_mask, is_causal)
            x = x + self._ff_block(self.norm2(x))
        else:
            x = self.norm1(x + self._sa_block(x, src_mask, src_key_padding_mask, is_causal))
            x = self.norm2(x + self._ff_block(x))
        return x

    def _sa_block(
        self, x: Tensor, attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], is_causal: bool = False
    ) -> Tensor:
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )[0]
        return self.dropout1(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return self.dropout2(x)


class TransformerDecoderLayer:
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Optional[Tensor] = None,
        memory_mask: Optional[Tensor] = None,
        tgt_key_padding_mask: Optional[Tensor] = None,
        memory_key_padding_mask: Optional[Tensor] = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        x = tgt
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), tgt_mask, tgt_key_padding_mask, tgt_is_causal)
            x = x + self._mha_block(self.norm2(x), memory, memory_mask, memory_key_padding_mask, memory_is_causal)
            x = x + self._ff_block(self.norm3(x))
        else:
            x = self.norm1(x + self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
            x = self.norm2(x + self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal))
            x = self.norm3(x + self._ff_block(x))
        return x

    def _sa_block(
        self, x: Tensor, attn_mask: Optional[Tensor], key_padding_mask: Optional[Tensor], is_causal: bool = False
    ) -> Tensor:
        x = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )[0]
        return self.dropout1(x)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Optional[Tensor],
        key_padding_mask: Optional[Tensor],
        is_causal: bool = False,
    ) -> Tensor:
        x = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )[0]
        return self.dropout2(x)

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return self.dropout3(x)


class TransformerEncoder:
    def forward(
        self,
        src: Tensor,
        mask: Optional[Tensor] = None,
        src_key_padding_mask: Optional[Tensor] = None,
        is_causal: Optional[bool] = None,
    ) -> Tensor:
        output = src
        causal = False
        if is_causal is not None:
            causal = is_causal
        for mod in self.layers:
            output = mod(output, src_mask=mask, is_causal=causal, src_key_padding_mask=src_key_padding_mask)
        if self.norm is not None:
            output = self.norm(output)
        return output


class TransformerDecoder:
    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Optional[Tensor] = None,
        memory_mask: Optional[Tensor] = None,
        tgt_key_padding_mask: Optional[Tensor] = None,
        memory_key_padding_mask: Optional[Tensor] = None,
        tgt_is_causal: Optional[bool] = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        output = tgt
        causal = False
        if tgt_is_causal is not None:
            causal = tgt_is_causal
        for mod in self.layers:
            output = mod(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        if self.norm is not None:
            output = self.norm(output)
        return output


class Transformer:
    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Optional[Tensor] = None,
        tgt_mask: Optional[Tensor] = None,
        memory_mask: Optional[Tensor] = None,
        src_key_padding_mask: Optional[Tensor] = None,
        tgt_key_padding_mask: Optional[Tensor] = None,
        memory_key_padding_mask: Optional[Tensor] = None,
        src_is_causal: Optional[bool] = None,
        tgt_is_causal: Optional[bool] = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )


# -- recurrent networks -----------------------------------------------------------------------------------------------------------


class LSTM:
    def forward(
        self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        if input.dim() != 2 and input.dim() != 3:
            raise ValueError(f"LSTM: Expected input to be 2D or 3D, got {input.dim()}D instead")
        is_batched = input.dim() == 3
        batch_dim = 0 if self.batch_first else 1
        if not is_batched:
            input = input.unsqueeze(batch_dim)
        max_batch_size = input.size(0) if self.batch_first else input.size(1)
        num_directions = 2 if self.bidirectional else 1
        real_hidden_size = self.proj_size if self.proj_size > 0 else self.hidden_size
        if hx is None:
            h_zeros = aten.zeros(
                [self.num_layers * num_directions, max_batch_size, real_hidden_size],
                dtype=input.dtype,
                device=input.device,
            )
            c_zeros = aten.zeros(
                [self.num_layers * num_directions, max_batch_size, self.hidden_size],
                dtype=input.dtype,
                device=input.device,
            )
            hx = (h_zeros, c_zeros)
        elif is_batched:
            if hx[0].dim() != 3 or hx[1].dim() != 3:
                raise RuntimeError(
                    "For batched 3-D input, hx and cx should also be 3-D but got"
                    f" ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
                )
        else:
            hx = (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
        result = aten.lstm(
            input,
            [hx[0], hx[1]],
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
            self.batch_first,
        )
        output = result[0]
        h, c = result[1], result[2]
        if not is_batched:
            output = output.squeeze(batch_dim)
            h = h.squeeze(1)
            c = c.squeeze(1)
        return output, (h, c)


class LSTMCell:
    def forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        is_batched = input.dim() == 2
        if not is_batched:
            input = input.unsqueeze(0)
        if hx is None:
            zeros = aten.zeros([input.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
            hx = (zeros, zeros)
        else:
            hx = (hx[0].unsqueeze(0), hx[1].unsqueeze(0)) if not is_batched else hx
        ret = aten.lstm_cell(input, [hx[0], hx[1]], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if not is_batched:
            ret = (ret[0].squeeze(0), ret[1].squeeze(0))
        return ret


# -- normalisation, losses, the rest -----------------------------------------------------------------------------------------------


class _BatchNorm:
    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if self.momentum is None:
            exponential_average_factor = 0.0
        else:
            exponential_average_factor = self.momentum
        if self.training and self.track_running_stats:
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if self.momentum is None:
                    exponential_average_factor = 1.0 / float(self.num_batches_tracked)
                else:
                    exponential_average_factor = self.momentum
        if self.training:
            bn_training = True
        else:
            bn_training = (self.running_mean is None) and (self.running_var is None)
        return F.batch_norm(
            input,
            self.running_mean if not self.training or self.track_running_stats else None,
            self.running_var if not self.training or self.track_running_stats else None,
            self.weight,
            self.bias,
            bn_training,
            exponential_average_factor,
            self.eps,
        )


class _InstanceNorm:
    def forward(self, input: Tensor) -> Tensor:
        if input.dim() == self._get_no_batch_dim():
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)


# -- layers that are alike -------------------------------------------------------------------------------------------------------------

_LOSS = """def forward(self, input: Tensor, target: Tensor) -> Tensor:
    return F.{name}(input, target, {options})
"""
_LOSSES = {
    "CrossEntropyLoss": ("cross_entropy", "weight ignore_index reduction label_smoothing"), "NLLLoss": ("nll_loss", "weight ignore_index reduction"),
    "MSELoss": ("mse_loss", "reduction"), "L1Loss": ("l1_loss", "reduction"), "SmoothL1Loss": ("smooth_l1_loss", "reduction beta"),
    "HuberLoss": ("huber_loss", "reduction delta"), "BCELoss": ("binary_cross_entropy", "weight reduction"),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", "weight pos_weight reduction"), "KLDivLoss": ("kl_div", "reduction log_target"),
}  # fmt: skip
_TRANSPOSED = """def forward(self, input: Tensor, output_size: Optional[List[int]] = None) -> Tensor:
    if output_size is not None:
        raise NotImplementedError("output_size is not supported in compiled code here")
    return aten.conv_transpose{d}d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )
"""
_EXPECTED = """def _check_input_dim(self, input: Tensor) -> None:
    if {unfit}:
        raise ValueError(f"expected {words} input (got {{input.dim()}}D input)")
"""
_RECURRENT = """def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"{name}: Expected input to be 2D or 3D, got {{input.dim()}}D instead")
    is_batched = input.dim() == 3
    batch_dim = 0 if self.batch_first else 1
    if not is_batched:
        input = input.unsqueeze(batch_dim)
        if hx is not None:
            hx = hx.unsqueeze(1)
    max_batch_size = input.size(0) if self.batch_first else input.size(1)
    num_directions = 2 if self.bidirectional else 1
    if hx is None:
        hx = aten.zeros([self.num_layers * num_directions, max_batch_size, self.hidden_size], dtype=input.dtype, device=input.device)
{calls}
    if not is_batched:
        output = output.squeeze(batch_dim)
        hidden = hidden.squeeze(1)
    return output, hidden
"""
_LAYERS = "output, hidden = aten.{op}(input, hx, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)"
_CELL = """def forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
    is_batched = input.dim() == 2
    if not is_batched:
        input = input.unsqueeze(0)
    if hx is None:
        hx = aten.zeros([input.size(0), self.hidden_size], dtype=input.dtype, device=input.device)
    else:
        hx = hx.unsqueeze(0) if not is_batched else hx
{calls}
    if not is_batched:
        ret = ret.squeeze(0)
    return ret
"""
_STEP = "ret = aten.{op}(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)"


def _chosen(question: str, line: str, yes: str, no: str) -> str:
    """One of two operators, by an attribute."""
    return f"    if {question}:\n        {line.format(op=yes)}\n    else:\n        {line.format(op=no)}"


def texts() -> dict[tuple[str, str], str]:
    """The methods that are not written out, by the layer's name and the method's."""
    out = {
        (name, "forward"): _LOSS.format(name=function, options=", ".join(f"{o}=self.{o}" for o in options.split()))
        for name, (function, options) in _LOSSES.items()
    }
    out |= {(f"ConvTranspose{d}d", "forward"): _TRANSPOSED.format(d=d) for d in (1, 2, 3)}
    for d, dims, words in ((1, (2, 3), "2D or 3D"), (2, (4,), "4D"), (3, (5,), "5D")):
        unfit = " and ".join(f"input.dim() != {n}" for n in dims)
        out[f"BatchNorm{d}d", "_check_input_dim"] = _EXPECTED.format(unfit=unfit, words=words)
    out["GRU", "forward"] = _RECURRENT.format(name="GRU", calls="    " + _LAYERS.format(op="gru"))
    out["RNN", "forward"] = _RECURRENT.format(
        name="RNN", calls=_chosen('self.mode == "RNN_TANH"', _LAYERS, "rnn_tanh", "rnn_relu")
    )
    out["GRUCell", "forward"] = _CELL.format(calls="    " + _STEP.format(op="gru_cell"))
    out["RNNCell", "forward"] = _CELL.format(
        calls=_chosen('self.nonlinearity == "tanh"', _STEP, "rnn_tanh_cell", "rnn_relu_cell")
    )
    return out


@functools.cache
def _forms() -> dict[tuple[Any, str], Any]:
    homes = (nn, nn.modules.batchnorm, nn.modules.instancenorm)
    table: dict[tuple[Any, str], Any] = {}
    for name, holder in list(globals().items()):
        own = [f for f in vars(holder).items() if inspect.isfunction(f[1])] if inspect.isclass(holder) else []
        for method, function in own:
            if function.__globals__ is globals():  # defined here, not imported
                table[(next(h.__dict__[name] for h in homes if name in h.__dict__), method)] = function
    return table | {(getattr(nn, name), method): text for (name, method), text in texts().items()}


def form_of(kind: Any, name: str, function: Any) -> Any:
    """The program for a method of a layer, where its Python code is not one: a function or a text."""
    for base in kind.__mro__:
        found = _forms().get((base, name))
        if found is not None:
            return found
        if base.__dict__.get(name) is function:
            return function
    return function


__all__ = ["List", "extra_attributes", "form_of", "torch"]
