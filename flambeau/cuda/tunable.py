"""`torch.cuda.tunable`: PyTorch's search for the fastest kernel of each matrix product. Here cuBLASLt's own heuristics choose; queries
report that nothing is tuned, and enabling it raises."""

from __future__ import annotations

from ..core.absent import raising as _raising
from ..core.absent import returning as _returning

_NOT_SUPPORTED = "products are never tuned."
globals().update(_returning("is_enabled tuning_is_enabled record_untuned_is_enabled", bool, _NOT_SUPPORTED))
globals().update(
    _returning("get_max_tuning_duration get_max_tuning_iterations get_rotating_buffer_size", int, _NOT_SUPPORTED)
)
globals().update(_returning("get_results get_validators", tuple, _NOT_SUPPORTED))
globals().update(_returning("get_filename", str, _NOT_SUPPORTED))
globals().update(
    _raising(
        "mgpu_tune_gemm_in_file read_file set_filename set_max_tuning_duration set_max_tuning_iterations"
        " set_numerical_check_tolerances set_rotating_buffer_size tune_gemm_in_file",
        NotImplementedError,
        "cuda.tunable.{}(): products are chosen by cuBLASLt's heuristics, not tuned",
    )
)


def enable(val: bool = True) -> None:
    """Raise an error if tunable products are requested: there are none."""
    if val:
        raise NotImplementedError("cuda.tunable: products are chosen by cuBLASLt's heuristics, not tuned")


tuning_enable = record_untuned_enable = enable
