"""Operators in C++: `load` and `load_inline` compile sources and import them; `CppExtension` and `BuildExtension` do so in a setup.py.

>>> module = load_inline("shop", "at::Tensor twice(at::Tensor x) { return 2 * x; }", functions="twice")  # doctest: +SKIP
>>> module.twice(flambeau.ones(2))  # doctest: +SKIP
tensor([2., 2.])

The headers are Flambeau's own (`flambeau/include`) and small: a tensor in C++ is the Python object, its memory read directly. Modules for
Python (PYBIND11_MODULE) need the headers of pybind11, which `pip install flambeau[cpp]` brings.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import ops
from ..core.ownership import refuse_planted
from ..kernels import cache
from .build_jobs import Jobs, write_text

_PACKAGE = Path(__file__).parents[1]
_INCLUDE = _PACKAGE / "include"
IS_WINDOWS, IS_MACOS, IS_LINUX = (sys.platform == name for name in ("win32", "darwin", "linux"))
LIB_EXT = ".so"
TORCH_LIB_PATH = str(_PACKAGE / "lib")
STANDARD = "c++17"


def _find_cuda_home() -> str | None:
    given = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    compiler = shutil.which("nvcc")
    if given is None and compiler is not None:
        given = str(Path(compiler).resolve().parents[1])
    if given is None and Path("/usr/local/cuda").exists():
        given = "/usr/local/cuda"
    return given


CUDA_HOME = _find_cuda_home()
CUDNN_HOME = os.environ.get("CUDNN_HOME")
ROCM_HOME = None


# ---------------------------------------------------------------------------------------------- where things are


def pybind11_include() -> str | None:
    """Return the folder of pybind11's headers, or None."""
    spec = importlib.util.find_spec("pybind11")
    for root in spec.submodule_search_locations or [] if spec is not None else []:
        if (Path(root) / "include" / "pybind11" / "pybind11.h").exists():
            return str(Path(root) / "include")
    return None  # it may still be in the compiler's own folders; if not, torch/extension.h says what is missing


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Return the folders that a compiler searches for headers."""
    paths = [str(_INCLUDE)] if torch_include_dirs else []
    bound = pybind11_include()
    if bound is not None:
        paths.append(bound)
    if device_type == "cuda" and CUDA_HOME is not None:
        paths.append(os.path.join(CUDA_HOME, "include"))
    return paths


def library_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """Return the folders that a linker searches. Flambeau has no library to link with: its operators are called through Python."""
    if device_type == "cuda" and CUDA_HOME is not None:
        return [os.path.join(CUDA_HOME, "lib64")]
    return []


def get_default_build_root() -> str:
    """Return the folder in which `load` builds, unless TORCH_EXTENSIONS_DIR or `build_directory` is set."""
    return str(cache.directory() / "extensions")


def is_ninja_available() -> bool:
    """Return whether the build tool ninja is installed."""
    return _ninja() is not None


@functools.cache
def _ninja() -> str | None:
    found = shutil.which("ninja")
    if found is None and importlib.util.find_spec("ninja") is not None:
        found = os.path.join(sys.prefix, "bin", "ninja")
    return found if found is not None and os.path.exists(found) else None


def verify_ninja_availability() -> None:
    """Raise an error if the build tool ninja is not installed."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def get_cxx_compiler() -> str:
    return os.environ.get("CXX", "c++" if shutil.which("c++") else "g++")


def _compiler() -> list[str]:
    found = shlex.split(get_cxx_compiler())
    if shutil.which(found[0]) is None:
        raise RuntimeError(
            f"there is no C++ compiler: {found[0]!r} was not found. Install one (apt install g++), or name it in the environment"
            " variable CXX"
        )
    return found


def check_compiler_ok_for_platform(compiler: str) -> bool:
    return shutil.which(compiler) is not None


# ---------------------------------------------------------------------------------------------- compiling and loading


def load(
    name: str, sources: str | Sequence[str], extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None, extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None, extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None, verbose: bool = False, with_cuda: bool | None = None,
    with_sycl: bool | None = None, is_python_module: bool = True, is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> Any:  # fmt: skip
    """Compile source files, unless that was done before, and import the result as a Python module.

    With `is_python_module=False` the library is loaded for what it registers (TORCH_LIBRARY), and its path returned; with
    `is_standalone=True` the sources are a program, whose path is returned. What is built is known by the contents of the sources and
    the options; headers that the sources include from elsewhere are found out by the compiler itself.
    """
    if with_sycl or extra_sycl_cflags:
        raise NotImplementedError("there is no SYCL in Flambeau")
    paths = [os.path.abspath(s) for s in ([sources] if isinstance(sources, str) else sources)]
    # torch/torch.h brings pybind11 along where Python imports the result
    options = Options(extra_cflags or (), extra_cuda_cflags or (), name, is_python_module and not is_standalone)
    options.folders += extra_include_paths or ()
    build = _Build(name, paths, options, build_directory, verbose)
    build.link_flags += list(extra_ldflags or ())
    if with_cuda or any(map(_is_cuda, paths)):
        options.folders += [os.path.join(CUDA_HOME, "include")] if CUDA_HOME is not None else []
        build.link_flags += [*(f"-L{p}" for p in library_paths("cuda")), "-lcudart"]
    path = build.run(program=is_standalone)
    if is_standalone:
        return path
    if is_python_module:
        return _import_extension(name, path)
    ops.load_library(path)
    return path


def load_inline(
    name: str, cpp_sources: str | Sequence[str], cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: Any = None, functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None, extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Any = None, extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None, build_directory: str | None = None, verbose: bool = False,
    with_cuda: bool | None = None, with_sycl: bool | None = None, is_python_module: bool = True,
    with_pytorch_error_handling: bool = True, keep_intermediates: bool = True, use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:  # fmt: skip
    """Compile C++ given as text. `functions` names those to export to Python: a name, a list, or a dict with their docstrings."""
    folder = _folder(name, build_directory)
    texts = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    if not no_implicit_headers:
        texts.insert(0, "#include <torch/extension.h>")
    if functions is not None:
        texts.append(_module_text(functions))
    written = [write_text(folder / "main.cpp", "\n".join(texts) + "\n")]
    if cuda_sources:
        device = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources)
        if not no_implicit_headers:
            device[:0] = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        written.append(write_text(folder / "cuda.cu", "\n".join(device) + "\n"))
    return load(
        name,
        written,
        extra_cflags,
        extra_cuda_cflags,
        None,
        extra_ldflags,
        extra_include_paths,
        str(folder),
        verbose,
        with_cuda,
        with_sycl,
        is_python_module,
    )


def _module_text(functions: str | Sequence[str] | Mapping[str, str]) -> str:
    if isinstance(functions, str):
        functions = [functions]
    named = functions if isinstance(functions, Mapping) else {f: f for f in functions}
    lines = [f'  m.def("{f}", {f}, "{text}");' for f, text in named.items()]
    return "\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}"])


def _folder(name: str, given: str | None) -> Path:
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root())
    folder = Path(given) if given is not None else root / f"py{sys.version_info.major}{sys.version_info.minor}" / name
    if given is not None and not folder.is_dir():
        raise RuntimeError(f"the build directory {given} does not exist")
    folder.mkdir(parents=True, exist_ok=True)
    refuse_planted(folder, "a build directory")  # what is built there is loaded, and runs
    return folder


class Options:
    """Compiler options of an extension's files, for the C++ compiler and for nvcc: those of its author and our own."""

    def __init__(self, cxx: Sequence[str], nvcc: Sequence[str], module: str, for_python: bool) -> None:
        self.cxx, self.nvcc = list(cxx), list(nvcc)
        self.folders: list[str] = []  # those of the author, searched first
        self.defines = [f"TORCH_EXTENSION_NAME={module}", *(["TORCH_API_INCLUDE_EXTENSION_H"] if for_python else [])]

    def for_cxx(self) -> list[str]:
        """Return the options without include folders and definitions, which setuptools takes separately."""
        optimize = [] if any(f.startswith("-O") for f in self.cxx) else ["-O2"]
        return [*_standard_option(self.cxx), *_HOST, *optimize, *self.cxx]

    def compiling(self, source: str, made: str) -> list[str]:
        """Return the command that compiles one file."""
        ours = [*include_paths("cuda" if _is_cuda(source) else "cpu"), sysconfig.get_paths()["include"]]
        read = [*(f"-I{p}" for p in self.folders), *(w for p in ours for w in ("-isystem", p))]
        known = [*read, *(f"-D{d}" for d in self.defines), "-MD", "-MF", f"{made}.d", "-c", source, "-o", made]
        if not _is_cuda(source):
            return [*_compiler(), *self.for_cxx(), *known]
        host = [f"-Xcompiler={f}" for f in _HOST]
        return [
            _nvcc(),
            *_standard_option(self.nvcc),
            *host,
            "--expt-relaxed-constexpr",
            *_architectures(self.nvcc),
            *self.nvcc,
            *known,
        ]


_HOST = ["-fPIC", "-fvisibility=hidden", "-fopenmp"]


def _is_cuda(source: str) -> bool:
    return source.endswith((".cu", ".cuh"))


def _standard_option(given: Sequence[str]) -> list[str]:
    return [] if any(f.startswith("-std=") for f in given) else [f"-std={STANDARD}"]


def _nvcc() -> str:
    found = None if CUDA_HOME is None else os.path.join(CUDA_HOME, "bin", "nvcc")
    if found is None or not os.path.exists(found):
        raise RuntimeError(
            "CUDA sources need NVIDIA's compiler: nvcc was not found (set CUDA_HOME to where the CUDA toolkit is)"
        )
    return found


def _architectures(given: Sequence[str]) -> list[str]:
    """Return the GPU architectures to compile for: those of the options, of TORCH_CUDA_ARCH_LIST ("8.0 9.0+PTX"), or the one here."""
    if any(f.startswith(("-arch", "--gpu-architecture", "-gencode", "--generate-code")) for f in given):
        return []
    named = os.environ.get("TORCH_CUDA_ARCH_LIST", "").replace(";", " ").split()
    if not named:
        return ["-arch=native"]
    found = []
    for name in named:
        number = name.removesuffix("+PTX").replace(".", "")
        if not number.rstrip("af").isdigit():
            raise ValueError(f"Unknown CUDA arch ({name}) or GPU not supported")
        kinds = ["sm", *(["compute"] if name.endswith("+PTX") else [])]
        found += [f"-gencode=arch=compute_{number},code={kind}_{number}" for kind in kinds]
    return found


def embedding() -> tuple[list[str], list[str]]:
    """Return the definitions and libraries of a program that embeds Python."""
    flags = [f'FLAMBEAU_PYTHON="{sys.executable}"', f'FLAMBEAU_HOME="{_PACKAGE.parent}"']
    folder = sysconfig.get_config_var("LIBDIR")
    version = sysconfig.get_config_var("LDVERSION")
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise RuntimeError("this Python was built without a shared library, so C++ programs cannot start it")
    return flags, [f"-L{folder}", f"-lpython{version}", f"-Wl,-rpath,{folder}"]


class _Build(Jobs):
    """Commands that build one library from its sources."""

    def __init__(self, name: str, sources: list[str], options: Options, directory: str | None, verbose: bool) -> None:
        super().__init__(name, _folder(name, directory), verbose)
        self.sources, self.options = sources, options
        self.link_flags: list[str] = []

    def run(self, program: bool = False) -> str:
        defines, libraries = embedding() if program else ([], ["-shared"])
        self.options.defines += defines
        objects = [
            str(self.folder / f"{Path(source).stem}{'' if not i else f'_{i}'}.o")
            for i, source in enumerate(self.sources)
        ]
        target = str(self.folder / (self.name if program else f"{self.name}{LIB_EXT}"))
        commands = [self.options.compiling(source, made) for source, made in zip(self.sources, objects)]
        link = [*_compiler(), *objects, "-fopenmp", *libraries, *self.link_flags, "-o", target]
        self.make(_ninja(), [*zip(objects, ([s] for s in self.sources), commands), (target, objects, link)])
        return target


_loaded: dict[str, tuple[str, Any]] = {}  # modules by path, with the digest of the file


def _import_extension(name: str, path: str) -> Any:
    """Import the extension module in a library. A rebuilt library is copied to a new file, since Python loads a file only once."""
    mark = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    known = _loaded.get(path)
    if known is not None and known[0] == mark:
        return known[1]
    if known is not None:
        fresh = f"{path[: -len(LIB_EXT)]}_{mark[:8]}{LIB_EXT}"
        shutil.copy(path, fresh)
    spec = importlib.util.spec_from_file_location(name, path if known is None else fresh)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    _loaded[path] = (mark, module)
    return module


# ---------------------------------------------------------------------------------------------- in a setup.py


def _setuptools() -> Any:
    try:
        return importlib.import_module("setuptools")
    except ModuleNotFoundError:
        raise ImportError("extensions are built by setuptools: pip install setuptools") from None


def CppExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """Return a `setuptools.Extension` of C++ sources: `ext_modules=[CppExtension("shop", ["shop.cpp"])]`."""
    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths()]
    kwargs["language"] = "c++"
    return _setuptools().Extension(name, list(sources), *args, **kwargs)


def CUDAExtension(name: str, sources: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    """Return a `setuptools.Extension` of C++ and CUDA sources, for which NVIDIA's nvcc must be installed."""
    kwargs["include_dirs"] = [*kwargs.get("include_dirs", []), *include_paths("cuda")]
    kwargs["library_dirs"] = [*kwargs.get("library_dirs", []), *library_paths("cuda")]
    kwargs["libraries"] = [*kwargs.get("libraries", []), "cudart"]
    kwargs["language"] = "c++"
    return _setuptools().Extension(name, list(sources), *args, **kwargs)


def _build_ext() -> type:
    """Return setuptools' command `build_ext`, imported when an extension is built."""
    _setuptools()
    base: Any = importlib.import_module("setuptools.command.build_ext").build_ext

    class BuildExtension(base):
        """Command that builds extensions of PyTorch's kind: `cmdclass={"build_ext": BuildExtension}`."""

        options: dict[str, Any] = {}

        @classmethod
        def with_options(cls, **options: Any) -> type:
            """Return the command with options such as `no_python_abi_suffix=True`."""
            return type("BuildExtension", (cls,), {"options": {**cls.options, **options}})

        def build_extensions(self) -> None:
            self.compiler.src_extensions += [".cu", ".cuh"]
            super().build_extensions()

        def build_extension(self, extension: Any) -> None:
            given = extension.extra_compile_args
            given = given if isinstance(given, dict) else {"cxx": given}
            options = Options(
                given.get("cxx", []), given.get("nvcc", []), extension.name.rpartition(".")[2], for_python=True
            )
            options.folders += extension.include_dirs
            extension.extra_compile_args = options.for_cxx()
            extension.extra_link_args = [*extension.extra_link_args, "-fopenmp"]
            extension.define_macros += [_macro(d) for d in options.defines]
            compile_one = self.compiler._compile

            def compile(obj: str, src: str, ext: str, cc_args: Any, extra: Any, pp_opts: Any) -> None:
                if not _is_cuda(src):
                    return compile_one(obj, src, ext, cc_args, extra, pp_opts)
                defined = [f for f in pp_opts if f.startswith("-D")]
                command = options.compiling(src, obj)
                subprocess.run([command[0], *defined, *command[1:]], check=True)
                return None

            self.compiler._compile = compile
            try:
                super().build_extension(extension)
            finally:
                self.compiler._compile = compile_one

        def get_ext_filename(self, ext_name: str) -> str:
            path = super().get_ext_filename(ext_name)
            if not self.options.get("no_python_abi_suffix"):
                return path
            parts = path.split(".")
            return ".".join([*parts[:-2], parts[-1]])

    return BuildExtension


def _macro(text: str) -> tuple[str, str | None]:
    name, _, value = text.partition("=")
    return name, value or None


if TYPE_CHECKING:
    BuildExtension: type[Any]
else:

    def __getattr__(name: str) -> Any:
        if name == "BuildExtension":
            globals()[name] = found = _build_ext()
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "BuildExtension", "CUDAExtension", "CppExtension", "get_default_build_root", "include_paths", "is_ninja_available", "library_paths", "load",
    "load_inline", "verify_ninja_availability",
]  # fmt: skip
