"""One-token changes that alter nothing that can be asked for, judged by a person, each with the reason.

A row is found again by its file and the text of its line, not by the number of the line.
"""

from __future__ import annotations

# (file below flambeau/, the line, the token, what it becomes): why no test can notice.
EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    ("ops/nn/band.py", "if not (1 <= step <= _MOST_STEPS and 1 <= taps <= _MOST_STEPS and lead >= 0):", "1", "2"): (
        "chooses a faster loop for windows at equal distances; the general one gives the same"
    ),
    ("ops/nn/resize.py", "if any(abs(n) >= 1 << 63 for n in wanted):", "63", "64"): (
        "sizes between the two are refused a little later, with the same type of error"
    ),
    (
        "vision/models/mobilenetv3.py",
        '(24, 5, 96, 40, True, "HS", 2), (40, 5, 240, 40, True, "HS", 1), (40, 5, 240, 40, True, "HS", 1),',
        "240",
        "241",
    ): ("widths are rounded to multiples of eight"),
    ("kernels/library/index.py", "ROWS = 1024  # index rows in one task of gather", "1024", "1025"): (
        "how much one task does; the tasks together do the same"
    ),
    ("optim/line_search.py", "left, right = (a, b) if a.size <= b.size else (b, a)", "<=", "<"): (
        "the two differ for points at one place only, and then either order is right"
    ),
    ("ops/shape/dimensions.py", "d = dim if 0 <= dim < n else wrap_dim(dim, n)", "0", "1"): (
        "a shortcut: wrap_dim gives the same for every dimension that there is"
    ),
    ("ops/nn/ctc.py", "(steps, samples, _), width = log_probs.shape, max(target_lengths, default=0)", "0", "1"): (
        "without a sample there is none of the memory whose width it is, and nobody sees that tensor"
    ),
    ("ops/nn/resize_bytes.py", "self.blocks = -(-band.taps // self.taps)", "//", "*"): (
        "how many inputs are summed in one go; blocks that reach too far are taken one input at a time, with the same sums"
    ),
    ("kernels/numpy_ops.py", "reflected = x < 0", "0", "1"): "the reflection holds for numbers between 0 and 1, too",
    (
        "kernels/library/ranges.py",
        "BLOCK = 1024",
        "1024",
        "1025",
    ): "how much one task does; the tasks together do the same",
    ("autograd/grad_mode.py", "inference_threads[:0] = (1,)", "1", "2"): "only the length of the list is read",
    ("core/shared_memory.py", '_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)', "0", "1"): (
        "Linux has the flag; 1 is MAP_SHARED, which is set already"
    ),
    (
        "kernels/special_bessel.py",
        "-1.7964302342606689e-16, 5.755537813115849e-17, -1.9085810023462685e-17, 6.5316323887296735e-18,",
        "5.755537813115849e-17",
        "8.633306719673774e-17",
    ): ("less than a unit in the last place of the sum that it is added to"),
    (
        "distributed/mailbox.py",
        "while not finished.wait(min(_LIVE_CHECK, max(0.001, deadline - time.monotonic()))):",
        "0.001",
        "0.0015",
    ): ("half a millisecond more of the last wait"),
    ("jit/object_pickle.py", "elif -(2**31) <= value < 2**31:", "<=", "<"): (
        "the lowest number of four bytes is written in eight, and read as the same number"
    ),
    (
        "ops/nn/normalization.py",
        "input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn_enabled: bool = True",
        "True",
        "False",
    ): ("PyTorch's signature has it; nothing looks at it, and PyTorch's own function has no readable signature"),
    ("kernels/library/gamma_gradient.py", "while left > 0:", "0", "1"): (
        "a series that has not ended by then is computed otherwise, and one that takes the last term is as exact without it"
    ),
    ("kernels/cuda_rows.py", "self.rows_held += 1", "1", "2"): "it is only asked whether the number is zero",
    (
        "serve/pool.py",
        "return not self.failing_since or time.monotonic() - self.failing_since < limit",
        "<",
        "<=",
    ): ("differs for a difference of two clock readings that is the limit to the last bit"),
    (
        "backends/cpu/onednn/gemm.py",
        'return product.table[4] == ord("N") and (rows * columns > _WORTH_A_PRIMITIVE or _lays_out_long(product))',
        ">",
        ">=",
    ): ("who computes a product of exactly that size; both give it"),
    ("kernels/special_loops.py", "if x < 0.5 * a:", "<", "<="): "at the border both expansions give the same",
}


def reason(file: str, line: str, before: str, after: str) -> str:
    """Why a change alters nothing, "" if nobody has judged so."""
    return EQUIVALENT.get((file.removeprefix("flambeau/"), line.strip(), before, after), "")
