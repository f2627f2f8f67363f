"""NVIDIA's libraries, found in pip's packages or in the system."""

from __future__ import annotations

import ctypes
import functools
import glob
import importlib.util
import os

from .driver import NoDevice

# Library -> folders of pip's `nvidia` namespace that may hold it (CUDA 13 has one for all), and the package to install.
_PLACES: dict[str, tuple[tuple[str, ...], str]] = {
    "nvrtc": (("cu13", "cuda_nvrtc"), "nvidia-cuda-nvrtc"),
    "cublas": (("cu13", "cublas"), "nvidia-cublas"),
    "cublasLt": (("cu13", "cublas"), "nvidia-cublas"),
    "cudnn": (("cudnn",), "nvidia-cudnn-cu13"),
    "cufft": (("cu13", "cufft"), "nvidia-cufft"),
    "curand": (("cu13", "curand"), "nvidia-curand"),
    "cusolver": (("cu13", "cusolver"), "nvidia-cusolver"),
    "cusparse": (("cu13", "cusparse"), "nvidia-cusparse"),
    "nvJitLink": (("cu13", "nvjitlink"), "nvidia-nvjitlink"),
    "nccl": (("nccl",), "nvidia-nccl-cu13"),
    "nvToolsExt": (("cu13", "nvtx"), "nvidia-nvtx"),
    "cupti": (("cu13", "cuda_cupti"), "nvidia-cuda-cupti"),
}
# Libraries that others open by name: these come first.
_NEEDS = {"cublas": ("cublasLt",), "cusolver": ("cublas", "nvJitLink", "cusparse"), "cusparse": ("nvJitLink",),
          "cudnn": ("cublas", "nvrtc")}  # fmt: skip
_SYSTEM = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
)


class MissingLibrary(NoDevice):
    """Raised for a library that is not installed, with how to get it."""


def candidates(name: str) -> list[str]:
    """Return paths and names under which a library may be found, the likeliest first."""
    folders, _ = _PLACES[name]
    found: list[str] = []
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec is not None else ():
        for folder in folders:
            found += _files(os.path.join(root, folder, "lib"), name)
    for folder in (os.environ.get("CUDA_HOME", "") and os.path.join(os.environ["CUDA_HOME"], "lib64"), *_SYSTEM):
        found += _files(folder, name) if folder else []
    return [*found, f"lib{name}.so"]


def _files(folder: str, name: str) -> list[str]:
    """Return names like libcudnn.so.9, the shortest (the one meant for linking) first."""
    return sorted(glob.glob(os.path.join(folder, f"lib{name}.so*")), key=lambda path: (len(path), path))


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Load one of NVIDIA's libraries, once."""
    for needed in _NEEDS.get(name, ()):
        try:
            library(needed)
        except MissingLibrary:  # it may come from where the dynamic loader looks
            continue
    problem: Exception | None = None
    for path in candidates(name):
        try:
            return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            problem = problem or error
    raise MissingLibrary(
        f"the library {name} of CUDA is not here ({problem}): `pip install flambeau[cuda]` brings it"
        f" (in the package {_PLACES[name][1]})"
    )
