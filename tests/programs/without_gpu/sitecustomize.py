"""Two GPUs on a machine that has none, for programs that insist on them: in every process started with this folder on PYTHONPATH,
what goes to cuda goes to the CPU, and nccl is gloo. The same for PyTorch and for Flambeau. Every process begins with the same seed,
and writes each loss that it calls backward on to a file of its own in LOSSES."""

import builtins
import functools
import os
import random
import runpy
import sys

_import = builtins.__import__


def _is_gpu(place) -> bool:
    return (isinstance(place, int) and not isinstance(place, bool)) or str(place).startswith("cuda")


def _on_cpu(function):
    """The same, where every device that is a GPU is the CPU."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        args = (*args[:1], *("cpu" if _is_gpu(a) else a for a in args[1:]))
        if _is_gpu(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        if _is_gpu(kwargs.get("map_location", "")):
            kwargs["map_location"] = "cpu"
        return function(*args, **kwargs)

    return call


def _changed(owner, name, **settings):
    """Lets a method be called with these settings whatever the program says."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args, **kwargs):
        kwargs.update({key: value for key, value in settings.items() if key in kwargs})
        return original(*args, **kwargs)

    setattr(owner, name, call)


def _record(torch):
    original = torch.Tensor.backward

    def backward(self, *args, **kwargs):
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        with open(os.path.join(os.environ["LOSSES"], f"losses.{rank}"), "a") as file:
            file.write(f"{float(self.detach()):.17g}\n")
        return original(self, *args, **kwargs)

    torch.Tensor.backward = backward


def _pretend(torch):
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data

    gpu = torch.device("cuda")
    for owner in (torch.Tensor, torch.nn.Module):
        owner.to = _on_cpu(owner.to)
        owner.cuda = lambda self, *args, **kwargs: self
    torch.load, torch.tensor = _on_cpu(torch.load), _on_cpu(torch.tensor)
    torch.cuda.set_device = lambda device: None
    torch.cuda.device_count = lambda: 2
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: 2
    torch.accelerator.current_accelerator = lambda check_available=False: gpu
    torch.accelerator.set_device_index = lambda device: None
    if hasattr(torch.optim.Optimizer, "_accelerator_graph_capture_health_check"):  # it asks the GPU that is not there
        torch.optim.Optimizer._accelerator_graph_capture_health_check = lambda self: None
    torch.distributed.get_default_backend_for_device = lambda device: "gloo"
    _changed(torch.distributed, "init_process_group", backend="gloo")
    _changed(torch.nn.parallel.DistributedDataParallel, "__init__", device_ids=None)
    _changed(torch.utils.data.DataLoader, "__init__", pin_memory=False)
    _record(torch)
    random.seed(0)
    torch.manual_seed(0)


def _with_torch(name, *args, **kwargs):
    found = _import(name, *args, **kwargs)
    torch = sys.modules.get("torch")
    if name.partition(".")[0] == "torch" and torch is not None and not getattr(torch.__spec__, "_initializing", False):
        builtins.__import__ = _import
        _pretend(torch)
    return found


if "torchrun" not in os.environ.get("THIS_IS", "") or "RANK" in os.environ:  # torchrun's own process stays as it is
    builtins.__import__ = _with_torch
    if os.environ.get("LIBRARY") == "torch":
        runpy.run_path(
            os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "shim", "sitecustomize.py")
        )
