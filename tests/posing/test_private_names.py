"""Names that libraries take from PyTorch's private rooms, and names that stand for parts of how it is built."""

from __future__ import annotations

import io
import zipfile

import pytest

import flambeau
from flambeau import nn

QUESTIONS = [
    "torch._shape_as_tensor(x)", "torch._assert_async(s)", "torch._assert_async(torch.tensor(0))", "torch._assert_async(x)",
    "torch._C._jit_set_profiling_executor(True)", "torch._C._jit_can_fuse_on_cpu()", "torch._C._get_cudnn_enabled()",
    "torch._C._has_xpu", "torch._C._current_graph_task_id()", "torch._C._are_functorch_transforms_active()",
    "torch._prims_common.is_contiguous_or_false(x.t())", "torch._utils._get_available_device_type()",
    "torch.nested._internal.nested_tensor.buffer_from_jagged(torch.nested.nested_tensor([x], layout=torch.jagged))",
    "torch._nested_compute_contiguous_strides_offsets(torch.tensor([[2, 3], [1, 4]]))",
    "torch._nested_view_from_buffer(torch.arange(4.), torch.tensor([[1], [3]]), torch.tensor([[1], [1]]), torch.tensor([0, 1])).unbind()",
    "torch.is_vulkan_available()", "torch.is_autocast_xla_enabled()", "torch.cudnn_is_acceptable(x)", "torch.bits8", "torch.bit", "torch.int7.is_signed", "torch.uint7.is_signed",
    "torch.empty(3, dtype=torch.bits2x4).shape", "torch.zeros(2, dtype=torch.int7).tolist()", "torch.ones(2, dtype=torch.bits8)", "torch.ones(2).to(torch.uint3)",
    "torch.zeros(2, dtype=torch.uint4) + 1", "torch.zeros(2, 3, dtype=torch.bits16).t()[1:].stride()", "torch.zeros(2, dtype=torch.int2).sum()",
    "torch.zeros(2, dtype=torch.uint4).view(torch.uint8)", "torch.AVG.name",
    "torch.parse_schema('shop::f(Tensor a, int b=2) -> Tensor').name", "torch.to_dlpack is not None", "torch.QInt8Storage.__name__",
    "torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (torch.tensor(0), x))[1]",
    "torch.set_anomaly_enabled(False)", "torch.random.thread_safe_generator()",
    "torch.sym_constrain_range(3, min=4)", "torch.sym_constrain_range(3, max=4)", "torch.compiler.get_default_backend()",
    "torch.compiler.config.recompile_limit", "torch.jit.annotations.is_list(list[int])", "torch.jit.annotations.is_dict(int)",
    "torch.jit.annotations.is_optional(int | None)", "torch.jit.annotations.is_optional(int | str)",
    "torch.jit.annotations.is_union(int | str)", "torch.jit.annotations.is_tuple(tuple[int, str])",
    "torch.jit.annotations.get_param_names(lambda a, b: a, 2)", "torch.jit.annotations.split_type_line('# type: (int) -> str')",
    "torch.jit.annotations.split_type_line('# type: int')", "torch.nn.attention.current_flash_attention_impl()",
    "torch.library.get_ctx()",
]  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_pytorchs(agrees, question):
    agrees(question)


def test_numpy_functions_take_tensors():
    import numpy as np

    @flambeau.compiler.wrap_numpy
    def squares(x):
        return np.square(x)

    assert squares(flambeau.arange(3.0)).tolist() == [0.0, 1.0, 4.0]


def test_default_backend_is_what_compile_uses():
    with pytest.raises(RuntimeError, match="Invalid backend"):
        flambeau.compiler.set_default_backend("magic")
    flambeau.compiler.set_default_backend("eager")
    try:
        assert flambeau.compiler.get_default_backend() == "eager"
        assert flambeau.compile(lambda x: x + 1)(flambeau.ones(1)).item() == 2
    finally:
        flambeau.compiler.set_default_backend(None)
    assert flambeau.compiler.get_default_backend() == "inductor"


def test_file_writer_makes_archives_that_are_read_back():
    file = io.BytesIO()
    writer = flambeau._C.PyTorchFileWriter(file)
    writer.write_record("data.pkl", b"abc", 3)
    writer.write_end_of_file()
    file.seek(0)
    assert zipfile.ZipFile(file).read("archive/data.pkl") == b"abc"
    file.seek(0)
    assert flambeau.PyTorchFileReader(file).get_record("data.pkl") == b"abc"


def test_swapped_tensors_go_back():
    from flambeau.nn.utils._named_member_accessor import swap_tensor

    layer = nn.Linear(1, 1)
    own = layer.weight
    before = swap_tensor(layer, "weight", flambeau.ones(1, 1))
    assert before is own and layer.weight.item() == 1
    assert swap_tensor(layer, "weight", own).item() == 1 and layer.weight is own
    with pytest.raises(AttributeError, match="no attribute"):
        swap_tensor(layer, "height", own)


def test_parts_of_how_pytorch_is_built_say_so():
    assert not isinstance(3, flambeau.AliasDb)
    with pytest.raises(NotImplementedError, match="C\\+\\+ class"):
        flambeau.AliasDb()
    with pytest.raises(NotImplementedError, match="call the operator itself"):
        flambeau.cudnn_convolution(flambeau.ones(1), flambeau.ones(1))
    with pytest.raises(NotImplementedError, match="always checks"):
        flambeau.compiler.skip_all_guards_unsafe([])


def test_batched_tensors_are_known_inside_vmap():
    functorch = flambeau._C._functorch
    seen = []

    def look(x):
        seen.append((functorch.is_batchedtensor(x), functorch.maybe_get_level(x), functorch.maybe_get_bdim(x)))
        return x + 1

    flambeau.vmap(look)(flambeau.ones(2, 3))
    assert seen == [(True, 1, 0)] and not functorch.is_batchedtensor(flambeau.ones(1))
