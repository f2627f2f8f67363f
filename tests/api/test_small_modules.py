"""Small modules of PyTorch's: attention kernels, weak dictionaries, futures, symbols, the CPU as a device."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref

import numpy as np
import pytest
from answers import judge

import flambeau

torch = judge("torch")
judge("torch.nn.attention.bias")
judge("torch.utils.checkpoint")
judge("torch.utils.dlpack")
judge("torch.utils.weak")

import flambeau.futures  # noqa: E402
import flambeau.nn.attention.bias  # noqa: E402
import flambeau.utils.checkpoint  # noqa: E402
import flambeau.utils.dlpack  # noqa: E402
import flambeau.utils.weak  # noqa: E402
from flambeau.compat import former_names  # noqa: E402

LIBRARIES = pytest.mark.parametrize("T", [flambeau, torch], ids=["flambeau", "torch"])

EXPRESSIONS = """
T.sym_int(-2.7)
T.sym_float(2)
T.sym_max(2, 3.0)
T.sym_min(2, 3.0)
T.sym_not(True)
T.sym_sqrt(4)
T.sym_ite(True, 1, 2)
T.sym_ite(1, 1, 2)
T.sym_ite(True, 1, 2.0)
T.sym_sum([1, 2])
isinstance(3, T.SymInt)
T._assert(False, "why")
T.compiled_with_cxx11_abi()
T.is_distributed(T.ones(1))
T.has_lapack
issubclass(T.OutOfMemoryError, RuntimeError)
issubclass(T.AcceleratorError, RuntimeError)
T.Storage is T.FloatStorage
T.norm_except_dim(T.ones(2, 3), 2, 0)
T.norm_except_dim(T.ones(2, 3), 2, -1)
T.norm_except_dim(T.ones(2, 3, 2), 2, 2)
T.frobenius_norm(T.ones(2, 3), dim=(0, 1))
T.frobenius_norm(T.ones(2, 3), dim=1)
T.frobenius_norm(T.ones(2, 3), dim=[], keepdim=True)
T.nuclear_norm(T.eye(2, 3))
T.nuclear_norm(T.eye(2, 3), dim=(0, 1), keepdim=True)
T.segment_reduce(T.arange(5.0), "sum", lengths=T.tensor([2, 3]))
T.segment_reduce(T.arange(5.0), "mean", offsets=T.tensor([0, 2, 5]))
T.segment_reduce(T.arange(5.0), "max", lengths=T.tensor([2, 0, 3]), initial=1)
T.segment_reduce(T.arange(5.0), "max", lengths=T.tensor([2, 0, 3]))
T.segment_reduce(T.arange(5.0), "min", lengths=T.tensor([2, 0, 3]))
T.segment_reduce(T.arange(5.0), "prod", lengths=T.tensor([2, 0, 3]))
T.segment_reduce(T.arange(5.0), "mean", lengths=T.tensor([2, 0, 3]))
T.segment_reduce(T.arange(5.0), "most", lengths=T.tensor([2, 3]))
T.segment_reduce(T.arange(5.0), "sum", lengths=T.tensor([2, 2]))
T.segment_reduce(T.arange(5.0), "sum")
T.segment_reduce(T.arange(6.0).reshape(2, 3), "sum", lengths=T.tensor([[1, 2], [3, 0]]), axis=1)
T.segment_reduce(T.arange(6.0).reshape(2, 3), "amax", lengths=T.tensor([1, 1]))
T.sparse_compressed_tensor(T.tensor([0, 1, 2]), T.tensor([0, 1]), T.ones(2), (2, 2), layout=T.sparse_csr).to_dense()
T.crow_indices_copy(T.eye(2).to_sparse_csr())
T.detach_(T.ones(2))
T.functional.atleast_2d(T.ones(2))
T.cpu.device_count()
T.cpu.current_device()
T.cpu.is_initialized()
T.backends.cpu.get_cpu_capability()
T.backends.opt_einsum.is_available()
T.backends.opt_einsum.enabled
T.backends.kleidiai.is_available()
T.backends.cusparselt.version()
int(T.nn.attention.SDPBackend.FLASH_ATTENTION)
T.nn.attention.sdpa_kernel("x").__enter__()
"""


def outcome(T, line):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's come once in a process
            result = eval(line, {"T": T})
    except Exception as error:
        return type(error).__name__, str(error).split(",")[0]
    if isinstance(result, T.Tensor):
        return str(result), str(result.dtype).split(".")[1]
    return result


@pytest.mark.parametrize("line", EXPRESSIONS.strip().splitlines())
def test_expressions(line):
    assert outcome(flambeau, line) == outcome(torch, line)


@LIBRARIES
def test_segment_reduce_has_gradients(T):
    x = T.arange(1.0, 6.0, requires_grad=True)
    T.segment_reduce(x, "mean", lengths=T.tensor([2, 3])).sum().backward()
    assert x.grad.tolist() == pytest.approx([0.5, 0.5, 1 / 3, 1 / 3, 1 / 3])


@LIBRARIES
def test_attention_kernels_can_be_chosen(T):
    q = T.ones(1, 2, 3, 4)
    kernels = T.nn.attention.SDPBackend
    for choice in (kernels.MATH, kernels.FLASH_ATTENTION, [kernels.MATH, kernels.FLASH_ATTENTION]):
        with T.nn.attention.sdpa_kernel(choice):
            assert T.nn.functional.scaled_dot_product_attention(q, q, q).shape == (1, 2, 3, 4)
    with T.nn.attention.sdpa_kernel(kernels.CUDNN_ATTENTION):
        assert T.backends.cuda.cudnn_sdp_enabled() and not T.backends.cuda.math_sdp_enabled()
        with pytest.raises(RuntimeError, match="No viable backend for scaled_dot_product_attention"):
            T.nn.functional.scaled_dot_product_attention(q, q, q)
    assert T.backends.cuda.math_sdp_enabled()
    with pytest.warns(FutureWarning, match="sdpa_kernel"), T.backends.cuda.sdp_kernel(enable_flash=False):
        assert T.backends.cuda.math_sdp_enabled() and not T.backends.cuda.flash_sdp_enabled()
    assert T.backends.cuda.flash_sdp_enabled()


@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
def test_causal_masks(name):
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        q, k, k, attn_mask=getattr(torch.nn.attention.bias, name)(3, 5)
    )
    mask = getattr(flambeau.nn.attention.bias, name)(3, 5)
    q, k = flambeau.tensor(q.tolist()), flambeau.tensor(k.tolist())
    ours = flambeau.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)
    assert isinstance(mask, flambeau.nn.attention.bias.CausalBias) and type(ours) is flambeau.Tensor
    flambeau.testing.assert_close(ours, flambeau.tensor(theirs.tolist()))


@LIBRARIES
def test_weak_dictionaries(T):
    a, b = T.ones(2), T.ones(2)
    kept = T.utils.weak.WeakTensorKeyDictionary()
    kept[a], kept[b] = 1, 2
    assert len(kept) == 2 and kept[a] == 1 and b in kept and T.ones(2) not in kept
    reference = T.utils.weak.TensorWeakRef(a)
    assert reference() is a
    del a
    gc.collect()
    assert len(kept) == 1 and reference() is None
    assert [v for _, v in kept.items()] == [2] and T.utils.weak.WeakIdRef(b) == T.utils.weak.WeakIdRef(b)


@LIBRARIES
def test_dlpack_capsules(T):
    x = T.arange(3.0)
    y = T.utils.dlpack.from_dlpack(T.utils.dlpack.to_dlpack(x))
    y[0] = 5
    assert x[0].item() == 5 and T.utils.dlpack.DLDeviceType.kDLCPU == 1


@LIBRARIES
def test_futures(T):
    first, second = T.futures.Future(), T.futures.Future()
    both = T.futures.collect_all([first, second])
    after = first.then(lambda f: f.value() + 1)
    threading.Timer(0.01, lambda: first.set_result(1)).start()
    assert after.wait() == 2 and first.done() and not both.done()
    second.set_result("x")
    assert [f.value() for f in both.wait()] == [1, "x"] and T.futures.wait_all([first, second]) == [1, "x"]
    with pytest.raises(RuntimeError, match="can only be marked completed once"):
        first.set_result(3)
    failed = T.futures.Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.wait()
    with pytest.raises(AssertionError, match="not an Exception"):
        T.futures.Future().set_exception(3)
    calls = []
    failed.add_done_callback(lambda f: calls.append(f.done()))
    assert calls == [True]


@LIBRARIES
def test_streams_of_the_cpu(T):
    stream = T.cpu.Stream()
    before = T.cpu.current_stream()
    with T.cpu.stream(stream):
        assert T.cpu.current_stream() is stream
    assert T.cpu.current_stream() is before
    T.cpu.synchronize()
    assert T.cpu.get_capabilities()["architecture"]


@LIBRARIES
def test_from_file(T, tmp_path):
    path = str(tmp_path / "numbers")
    shared = T.from_file(path, shared=True, size=3, dtype=T.float64)
    shared.copy_(T.arange(3.0))
    again = T.from_file(path, size=3, dtype=T.float64)
    assert again.tolist() == [0.0, 1.0, 2.0]
    again[0] = 9  # private: the file keeps what it has
    assert T.from_file(path, size=3, dtype=T.float64).tolist() == [0.0, 1.0, 2.0]


@LIBRARIES
def test_memory_of_the_cpu_stays_there(T, tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(bytes(16))
    for option, refusal in (
        ({"device": "meta"}, NotImplementedError),
        ({"layout": T.sparse_coo}, NotImplementedError),
        ({"pin_memory": True}, RuntimeError),
    ):
        with pytest.raises(refusal):
            T.from_file(str(path), size=4, **option)
    with pytest.raises(BufferError):
        T.from_dlpack(np.ones(2), device="meta")
    with pytest.raises(AssertionError, match="unsupported device type"):
        T.from_dlpack(np.ones(2), device=5)
    assert T.from_dlpack(np.ones(2), device="cpu").tolist() == [1, 1]


@LIBRARIES
def test_modules_of_devices(T):
    assert T.get_device_module("cpu") is T.cpu and T.get_device_module() is T.cpu
    with pytest.raises(RuntimeError, match="device string: xyz"):
        T.get_device_module("xyz")
    assert T.get_file_path("a", "b").endswith("a/b")


@LIBRARIES
def test_set_module(T):
    class Here:
        pass

    T.utils.set_module(Here, "there")
    assert Here.__module__ == "there"
    with pytest.raises(TypeError, match="should be a string"):
        T.utils.set_module(Here, 3)


@LIBRARIES
def test_swapped_tensors(T):
    a, b = T.nn.Parameter(T.ones(2)), T.zeros(3)
    held = [a, b]
    b.note = "here"
    T.utils.swap_tensors(a, b)
    assert held[0].tolist() == [0.0, 0.0, 0.0] and held[1].tolist() == [1.0, 1.0] and held[0].note == "here"
    assert type(held[0]) is T.Tensor and isinstance(held[1], T.nn.Parameter) and held[1].requires_grad
    (held[1] * 2).sum().backward()
    assert held[1].grad.tolist() == [2.0, 2.0]
    reference = weakref.ref(a)
    with pytest.raises(RuntimeError, match="Cannot swap t1 because it has weakref associated with it"):
        T.utils.swap_tensors(a, b)
    assert reference() is a


@LIBRARIES
def test_detached_arguments_of_a_checkpoint(T):
    x = T.ones(1, requires_grad=True) * 2
    detached, number = T.utils.checkpoint.detach_variable((x, 3))
    assert detached.is_leaf and detached.requires_grad and number == 3
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        T.utils.checkpoint.detach_variable([x])
    assert T.utils.checkpoint.get_device_states(x) == ([], [])


def test_names_that_programs_ask_for():
    assert flambeau.cuda.amp.grad_scaler.OptState is flambeau.amp.grad_scaler.OptState
    assert isinstance(flambeau.__config__._cxx_flags(), str)
    for options in ((2, 3), (2, 3, 2, True, False, 0.0, True)):
        names = [library.nn.GRU(*options)._flat_weights_names for library in (flambeau, torch)]
        assert names[0] == names[1]


def test_further_names_below_a_package_that_is_not_there_are_not_found() -> None:
    assert former_names.spec_of("flambeau._C._dynamo.guards") is None
    assert former_names.spec_of("flambeau._C.nothing") is None


def test_modes_of_overrides_are_counted() -> None:
    assert flambeau._C._len_torch_function_stack() == 0
    with flambeau.overrides.TorchFunctionMode(), flambeau.overrides.TorchFunctionMode():
        assert flambeau._C._len_torch_function_stack() == 2
