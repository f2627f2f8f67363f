"""Further names of modules: one table, and the finder that serves it.

PyTorch moves its modules and keeps the former names; programs import both. Its private modules, which programs import, too, are in
`compat.private`. The finder answers for names under this package alone.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..core import naming

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # what `importlib.abc` itself imports in Python 3.11, tempfile and 15 more, is not needed for them
    Loader = MetaPathFinder = object


def _same_names(further: str, home: str, names: str) -> dict[str, str]:
    return {further + name: home + name for name in names.split()}


def _in_one(package: str, parts: str) -> dict[str, str]:
    """Map the parts that a package has in PyTorch to the package itself."""
    return {f"{package}.{part}": package for part in parts.split()}


# Modules and packages, with all that is in them, by the further name: both names give one module object.
MOVED = {
    **_same_names(
        "",
        "compat.private.",
        "_C _VF __config__ __future__ _custom_op _dynamo _higher_order_ops _inductor"
        " _functorch _guards _jit_internal _library _ops _prims_common _subclasses _tensor _tensor_str _utils",
    ),
    **_same_names(
        "backends.", "compat.switches.", "cuda cudnn cusparselt mha mkldnn mps nnpack openmp opt_einsum quantized"
    ),
    "autograd.profiler": "profiler.session",
    "autograd.profiler_util": "profiler.events",
    "backends.kleidiai": "compat.switches.unused",
    "backends.mkl": "compat.switches.unused",
    "compat.private._dynamo.exc": "core.compile_options",
    "compat.private._functorch.vmap": "func.mapping",
    "compiler.config": "compat.private._dynamo.config",
    "distributed._tensor": "distributed.tensor",
    "distributed._tensor.api": "distributed.tensor",
    "distributed._tensor.device_mesh": "distributed.device_mesh",
    "distributed.tensor.device_mesh": "distributed.device_mesh",
    "fx.experimental.proxy_tensor": "export.proxy_tensor",
    "horovod.torch.mpi_ops": "horovod.torch.operations",
    "nn.intrinsic": "ao.nn.intrinsic",
    "nn.parallel.distributed": "distributed.data_parallel",
    "nn.qat": "ao.nn.qat",
    "nn.quantizable": "ao.nn.quantizable",
    "nn.quantized": "ao.nn.quantized",
    "profiler.ranks": "distributed.memory_of_ranks",
    "quantization": "ao.quantization",
    "serve.archive": "serve.archive_reader",
    "utils.bottleneck": "profiler.bottleneck",
    "utils.flop_counter": "profiler.flop_counter",
    **_in_one("cpu.amp", "autocast_mode grad_scaler"),
    **_in_one(
        "serve.ts.metrics",
        "caching_metric dimension metric metric_cache_errors metric_cache_yaml_impl metric_type_enum unit",
    ),
    **_in_one("serve.ts.torch_handler.request_envelope", "base body json kserve kservev2"),
}
# Modules that only gather names of others: "home: name name, home: further=name".
_ROWS = (Path(__file__).parents[1] / "data/gathered_names.txt").read_text().splitlines()
GATHERED: dict[str, str] = {name: parts.strip() for name, _, parts in (row.partition(" =") for row in _ROWS)}

# Modules of PyTorch that are one here, with the classes that each defines, by the home of all: "module: class class, module: class".
TOGETHER = {
    "distributed.algorithms.model_averaging": "model_averaging.averagers: ModelAverager PeriodicModelAverager,"
    " model_averaging.hierarchical_model_averager: HierarchicalModelAverager, model_averaging.utils:",
    "distributions.counts": "bernoulli: Bernoulli, binomial: Binomial, categorical: Categorical, geometric: Geometric,"
    " mixture_same_family: MixtureSameFamily, multinomial: Multinomial, negative_binomial: NegativeBinomial,"
    " one_hot_categorical: OneHotCategorical OneHotCategoricalStraightThrough, poisson: Poisson",
    "distributions.derived": "independent: Independent, transformed_distribution: TransformedDistribution",
    "distributions.distribution": "exp_family: ExponentialFamily",
    "distributions.intervals": "beta: Beta, continuous_bernoulli: ContinuousBernoulli, dirichlet: Dirichlet,"
    " kumaraswamy: Kumaraswamy, uniform: Uniform",
    "distributions.location_scale": "cauchy: Cauchy, gumbel: Gumbel, half_cauchy: HalfCauchy, half_normal: HalfNormal,"
    " laplace: Laplace, log_normal: LogNormal, logistic_normal: LogisticNormal, normal: Normal, studentT: StudentT,"
    " von_mises: VonMises",
    "distributions.matrices": "lkj_cholesky: LKJCholesky, lowrank_multivariate_normal: LowRankMultivariateNormal,"
    " multivariate_normal: MultivariateNormal, wishart: Wishart",
    "distributions.positive": "chi2: Chi2, exponential: Exponential, fishersnedecor: FisherSnedecor, gamma: Gamma,"
    " generalized_pareto: GeneralizedPareto, inverse_gamma: InverseGamma, pareto: Pareto, weibull: Weibull",
    "distributions.relaxed": "relaxed_bernoulli: LogitRelaxedBernoulli RelaxedBernoulli, relaxed_categorical:"
    " ExpRelaxedCategorical RelaxedOneHotCategorical",
    "optim.adagrad": "adadelta: Adadelta, asgd: ASGD, rmsprop: RMSprop, rprop: Rprop",
    "optim.adam": "adamax: Adamax, adamw: AdamW, nadam: NAdam, radam: RAdam",
}


def _parts(home: str, entry: str) -> dict[str, list[str]]:
    split = (part.partition(":") for part in entry.split(","))
    return {f"{home.rpartition('.')[0]}.{name.strip()}": kinds.split() for name, _, kinds in split}


# By home, then by PyTorch's module: the classes that are defined there.
PARTS = {home: _parts(home, entry) for home, entry in TOGETHER.items()}
MOVED |= {part: home for home, parts in PARTS.items() for part in parts}


def settle(module: str) -> None:
    """Set the modules of the names that a module of `TOGETHER` defines to PyTorch's, for messages and pickles, and add the parts to the
    packages.

    Called at the end of the module: `settle(__name__)`."""
    here = sys.modules[module]
    for part, names in PARTS[module[len(naming.PACKAGE) + 1 :]].items():
        package, _, last = f"{naming.PACKAGE}.{part}".rpartition(".")
        vars(sys.modules[package]).setdefault(last, here)
        for name in names:
            getattr(here, name).__module__ = f"{package}.{last}"


class AliasLoader(Loader):
    """Loader of a module of this package, unchanged, under a second name."""

    def __init__(self, real_name: str):
        self.real_name = real_name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = naming.load(self.real_name)
        self.real_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.real_spec  # the import system has just replaced it by the alias's

    def get_code(self, fullname: str) -> Any:
        """Return the module's code, for `python -m second.name`."""
        real = importlib.util.find_spec(self.real_name)
        return real.loader.get_code(self.real_name) if real is not None else None  # type: ignore[union-attr]


class _Gatherer(Loader):
    """Loader that makes a module of names from others."""

    def __init__(self, entry: str):
        self.entry = entry

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Return None: Python makes the module."""

    def exec_module(self, module: ModuleType) -> None:
        gathered: dict[str, Any] = {}
        for part in self.entry.split(",") if self.entry else ():
            home, _, names = part.partition(":")
            found = naming.load(f"{naming.PACKAGE}.{home.strip()}".rstrip("."))
            for name in names.split():
                here, _, there = name.partition("=")
                gathered[here] = getattr(found, there or here)
        about = "Where PyTorch has " + ", ".join(f"`{name}`" for name in gathered) + "."
        below = functools.partial(naming.submodule, module.__name__)
        vars(module).update(gathered, __all__=list(gathered), __doc__=about, __getattr__=below)


def spec_of(fullname: str) -> importlib.machinery.ModuleSpec | None:
    """Return the import system's spec of the module of a further name; None for other names."""
    name = fullname[len(naming.PACKAGE) + 1 :]
    if name in GATHERED:  # a package, so that others can be gathered below it
        return importlib.machinery.ModuleSpec(
            fullname, _Gatherer(GATHERED[name]), origin=naming.PACKAGE, is_package=True
        )
    head, rest = name, ""
    while head and head not in MOVED:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}"
    if not head:
        return None
    real_name = f"{naming.PACKAGE}.{MOVED[head]}{rest}"
    try:
        if real_name not in sys.modules and importlib.util.find_spec(real_name) is None:
            return None
    except ModuleNotFoundError as error:  # of a package around it
        if not real_name.startswith(f"{error.name}."):
            raise
        return None
    return importlib.machinery.ModuleSpec(fullname, AliasLoader(real_name), origin=naming.PACKAGE)


class FormerNames(MetaPathFinder):
    """Finder of modules by their further names. It precedes the finder of files, which would load the parts of a package a second time under
    its second name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return spec_of(fullname) if fullname.startswith(f"{naming.PACKAGE}.") else None


def install() -> None:
    """Install the finder that imports the modules of the table."""
    if not any(isinstance(finder, FormerNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, FormerNames())
