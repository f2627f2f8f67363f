"""`torch.nested`: tensors whose rows have different lengths, which Flambeau does not have."""

from __future__ import annotations

from .core.absent import raising as _raising

globals().update(
    _raising(
        "nested_tensor as_nested_tensor nested_tensor_from_jagged narrow to_padded_tensor masked_select",
        NotImplementedError,
        "torch.nested.{}: Flambeau has no nested tensors; pad the rows (nn.utils.rnn.pad_sequence) or pack them",
    )
)
