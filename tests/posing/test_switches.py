"""compile, mixed precision and the modules about devices that are not there."""

from __future__ import annotations

import typing

import pytest

import flambeau
from flambeau import nn


def test_compiled_model_runs_eagerly_and_looks_like_pytorchs():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    compiled = flambeau.compile(model, mode="default")
    assert compiled._orig_mod is model and list(compiled.state_dict())[0] == "_orig_mod.0.weight"
    assert repr(compiled).startswith("OptimizedModule(\n  (_orig_mod): Sequential(")
    compiled.eval()
    assert not model.training and not compiled.training
    x = flambeau.ones(3, 2)
    assert flambeau.equal(compiled(x), model(x))
    compiled.note = 5  # what is set on it, is set on the model
    assert model.note == 5 and compiled.note == 5
    with pytest.raises(AttributeError):
        compiled.no_such_thing


def test_compiled_functions_and_decorators():
    @flambeau.compile(fullgraph=True, dynamic=False)
    def double(x):
        "Twice x."
        return 2 * x

    assert double(flambeau.ones(1)).item() == 2 and double.__doc__ == "Twice x."
    assert flambeau.compiler.disable(double)(flambeau.ones(1)).item() == 2 and not flambeau.compiler.is_compiling()
    model = nn.Linear(1, 1)
    model.compile()
    assert model(flambeau.ones(1)).shape == (1,)


def test_compile_rejects_what_pytorch_rejects(same_outcome):
    same_outcome(lambda torch: torch.compile(3))
    same_outcome(lambda torch: torch.compile(len, mode="fastest"))
    same_outcome(lambda torch: torch.compile(len, mode="default", options={}))
    with pytest.raises(RuntimeError, match="Invalid backend: 'magic'"):
        flambeau.compile(len, backend="magic")
    with pytest.raises(NotImplementedError, match="graphs"):
        flambeau.compile(len, backend=lambda graph, inputs: graph)


def test_autocast_without_its_device_changes_nothing():
    x = flambeau.ones(2, 2)
    with flambeau.autocast("cpu", enabled=False):
        assert (x @ x).dtype is flambeau.float32
    with pytest.warns(UserWarning, match="Disabling autocast"):
        context = flambeau.autocast("cuda", dtype=flambeau.float16)
    with context:
        assert (x @ x).dtype is flambeau.float32
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        flambeau.autocast("abacus")


ANSWERS = [
    "cuda.is_available()", "cuda.device_count()", "cuda.is_initialized()", "cuda.memory_allocated()", "cuda.manual_seed_all(0)",
    "cuda.empty_cache()", "cuda.current_device()", "cuda.synchronize()", "cuda.get_device_name(0)", "cuda.get_device_properties(0)",
    "cuda.get_rng_state_all()", "cuda.Stream()", "cuda.Event()", "cuda.stream(None).__enter__()", "cuda.device(0).__enter__()",  "accelerator.is_available()", "accelerator.current_accelerator()",
    "accelerator.device_count()", "accelerator.synchronize()", "mps.is_available()", "mps.manual_seed(0)", "mps.empty_cache()",
    "xpu.is_available()", "xpu.synchronize()", "cpu.is_available()", "cpu.current_device()", "backends.cudnn.is_available()",
    "backends.cudnn.version()", "backends.cudnn.enabled", "backends.cudnn.benchmark", "backends.mps.is_available()",
    "backends.mps.is_built()", "backends.cuda.is_built()", "backends.cuda.matmul.allow_tf32", "backends.cuda.flash_sdp_enabled()",
    "version.cuda", "version.hip", "version.debug", "device('mps')", "device('xpu', 1)", "device('abacus')",
    "zeros(1, device='cuda')", "zeros(1, device='xpu')", "zeros(1).to('mps')", "zeros(1).cuda()", "nn.Linear(1, 1).to('mps')",
    "xpu.memory_stats()", "xpu.random.get_rng_state_all()", "xpu.get_arch_list()", "xpu.memory.max_memory_reserved()", "xpu.init()",
    "xpu.graphs.XPUGraph()", "xpu.streams.Stream()", "mtia.is_initialized()", "mtia.memory.memory_stats()", "mtia.init()",
    "mtia.default_stream()", "mps.profiler.start()", "accelerator.memory.memory_allocated()", "accelerator.empty_host_cache()",
    "cuda.cudaStatus.SUCCESS", "cuda.FloatStorage.__name__", "isinstance(zeros(1).storage(), cuda.FloatStorage)",
    "backends.cuda.is_flash_attention_available()",
    "backends.cuda.preferred_linalg_library('abacus')", "backends.cuda.fp16_bf16_reduction_math_sdp_allowed()",
    "distributed.is_initialized()", "amp.GradScaler('cpu', growth_factor=1.0)", "autocast(3)",
]  # fmt: skip


@pytest.mark.parametrize("question", ANSWERS)
def test_questions_about_devices(agrees, question):
    agrees(f"torch.{question}")


def test_tuned_products_are_refused_and_untuned_ones_allowed():
    tunable = flambeau.cuda.tunable
    tunable.enable(False)
    assert not tunable.is_enabled() and not tunable.tuning_is_enabled()
    with pytest.raises(NotImplementedError, match="cuBLASLt"):
        tunable.enable()


def test_collectives_between_tensors_of_one_process():
    nccl = flambeau.cuda.nccl
    parts = [flambeau.arange(4.0), flambeau.ones(4), flambeau.full((4,), 2.0)]
    outputs = [flambeau.zeros(4) for _ in parts]
    nccl.all_reduce(parts, outputs)
    assert all(out.tolist() == [3.0, 4.0, 5.0, 6.0] for out in outputs)
    nccl.reduce(parts, outputs[0], op=2)
    assert outputs[0].tolist() == [2.0, 2.0, 2.0, 3.0]
    halves = [flambeau.zeros(2), flambeau.zeros(2)]
    nccl.reduce_scatter(parts[:2], halves)
    assert [h.tolist() for h in halves] == [[1.0, 2.0], [3.0, 4.0]]
    gathered = [flambeau.zeros(8)]
    nccl.all_gather(parts[:2], gathered)
    assert gathered[0].tolist() == [0.0, 1.0, 2.0, 3.0, 1.0, 1.0, 1.0, 1.0]
    nccl.broadcast(parts, root=1)
    assert parts[0].tolist() == parts[2].tolist() == [1.0] * 4


def test_switches_are_remembered():
    cudnn = flambeau.backends.cudnn
    with cudnn.flags(enabled=True, benchmark=True):
        assert cudnn.benchmark
    assert not cudnn.benchmark
    mkldnn = flambeau.backends.mkldnn
    if mkldnn.is_available():
        with mkldnn.flags(enabled=False):
            assert not mkldnn.enabled
        mkldnn.enabled = True
        assert mkldnn.enabled
    assert "oneDNN" in flambeau.__config__.show() and "threads" in flambeau.__config__.parallel_info()
    with pytest.raises(ValueError, match="environment variable RANK expected"):
        flambeau.distributed.init_process_group("gloo")


def test_attention_has_no_fast_path_to_switch_on():
    before = flambeau.backends.mha.get_fastpath_enabled()
    flambeau.backends.mha.set_fastpath_enabled(False)
    flambeau.backends.mha.set_fastpath_enabled(before)
    with pytest.raises(RuntimeError, match="no fast path"):
        flambeau.backends.mha.set_fastpath_enabled(True)


def test_generators_of_missing_devices_cannot_be_saved():
    with pytest.raises(AssertionError, match="no cuda device"), flambeau.random.fork_rng(devices=[0]):
        pass


WITHOUT_COMPILER = [
    "jit.isinstance([1, 2], List[int])", "jit.isinstance([1, 'a'], List[int])", "jit.isinstance({'a': [1.0]}, Dict[str, List[float]])",
    "jit.isinstance((1, 'a'), Tuple[int, str])", "jit.isinstance((1,), Tuple[int, str])", "jit.isinstance(None, Optional[int])",
    "jit.isinstance(2.0, Optional[int])", "jit.isinstance([2.0], (List[int], List[float]))",
    "jit.isinstance(torch.zeros(1), torch.Tensor)", "jit.wait(jit.fork(lambda a, b: a - b, 3, b=1))", "jit.fork(abs, -2).wait()",
    "jit.Attribute(1, int)", "cuda.OutOfMemoryError is torch.OutOfMemoryError",
]  # fmt: skip


@pytest.mark.parametrize("text", WITHOUT_COMPILER)
def test_names_that_need_no_compiler(same_outcome, text):
    code = compile(f"torch.{text}".replace(" jit.", " torch.jit.").replace("(jit.", "(torch.jit."), "<test>", "eval")
    same_outcome(lambda torch: eval(code, {**vars(typing), "torch": torch}))


def test_script_refuses_what_is_no_program():
    @flambeau.jit.ignore
    def ignored():
        return 1

    model = nn.Linear(1, 1)
    assert ignored() == 1 and not flambeau.jit.is_scripting()
    with pytest.raises(AttributeError, match="only compiled modules can be saved"):
        flambeau.jit.save(model, "file.pt")
    with pytest.raises(TypeError, match="script expects"):
        flambeau.jit.script(3)
    assert not isinstance(model, flambeau.jit.ScriptModule)
    flambeau._C._log_api_usage_once("test")
    assert flambeau._C._VariableFunctions.relu is flambeau.relu


def test_settings_of_pytorchs_compiler_can_be_made():
    before = flambeau._dynamo.config.suppress_errors, flambeau._inductor.config.coordinate_descent_tuning
    assert before == (False, False)
    try:
        flambeau._dynamo.config.suppress_errors = flambeau._inductor.config.coordinate_descent_tuning = True
        assert flambeau.compile(lambda x: x + 1)(flambeau.ones(1)).item() == 2
    finally:
        flambeau._dynamo.config.suppress_errors = flambeau._inductor.config.coordinate_descent_tuning = False


def test_names_of_tensors_on_a_gpu():
    kind = flambeau.cuda.FloatTensor
    assert kind.is_cuda and kind.dtype is flambeau.float32 and not isinstance(flambeau.ones(1), kind)
    with pytest.raises(TypeError, match=r"type torch.cuda.FloatTensor not available"):
        kind(3)
    with pytest.raises(RuntimeError, match="not available"):
        flambeau.ones(2).type(kind)
