"""Styles of tensor parallelism: placements for the parameters, inputs and outputs of a model's modules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from ....core.tensor import Tensor
from ....nn.modules.linear import Linear
from ....nn.modules.sparse import Embedding
from ....nn.parameter import Parameter
from ...device_mesh import DeviceMesh
from .._api import DTensor, distribute_module, distribute_tensor
from ..placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput",
    "RowwiseParallel", "SequenceParallel",
]  # fmt: skip


class ParallelStyle(ABC):
    """Base of styles, which distribute a module over a mesh. `src_data_rank` is the rank whose parameters are distributed."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any: ...

    _fields: tuple[str, ...] = ()  # the settings that are printed

    def _repr_fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._fields}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in self._repr_fields().items())})"


def _redistribute_input(value: Any, mesh: DeviceMesh, given: Any, wanted: Any) -> Any:
    """Redistribute a tensor from the `given` to the `wanted` placements."""
    spread = value if isinstance(value, DTensor) else DTensor.from_local(value, mesh, given, run_check=False)
    return spread if tuple(given) == tuple(wanted) else spread.redistribute(placements=wanted)


class _LinearStyle(ParallelStyle):
    """Base of column- and row-wise styles: a placement for each parameter of a linear layer or an embedding."""

    _needs: dict[type, Placement]  # how the input of each kind of module must be placed
    _cuts: dict[type, dict[str, Placement]]

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        before, after = self._layouts
        self.input_layouts = (input_layouts or before,)
        self.output_layouts = (output_layouts or after,)
        self.use_local_output = use_local_output

    _layouts: tuple[Placement, Placement]

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        kind = next((k for k in self._cuts if isinstance(module, k)), None)
        if kind is None:
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!")
        cuts = self._cuts[kind]
        self.desired_input_layouts = (self._needs[kind],)

        def partition(name: str, part: Any, mesh: DeviceMesh) -> None:
            for key, param in list(part.named_parameters()):
                spread = distribute_tensor(param, mesh, [cuts[key]], src_data_rank=self.src_data_rank)
                part.register_parameter(key, Parameter(spread, requires_grad=param.requires_grad))

        def enter(part: Any, inputs: tuple, mesh: DeviceMesh) -> Any:
            return _redistribute_input(inputs[0], mesh, self.input_layouts, self.desired_input_layouts)

        def leave(part: Any, outputs: Any, mesh: DeviceMesh) -> Any:
            if outputs.placements != self.output_layouts:
                outputs = outputs.redistribute(placements=self.output_layouts)
            return outputs.to_local() if self.use_local_output else outputs

        return distribute_module(module, device_mesh, partition, enter, leave)

    _fields = ("input_layouts", "output_layouts", "use_local_output")


class ColwiseParallel(_LinearStyle):
    """Style in which each rank has some of the outputs of a linear layer, or columns of an embedding: whole inputs, sharded output."""

    _layouts = (Replicate(), Shard(-1))
    _needs = {Linear: Replicate(), Embedding: Replicate()}
    _cuts = {Linear: {"weight": Shard(0), "bias": Shard(0)}, Embedding: {"weight": Shard(1)}}


class RowwiseParallel(_LinearStyle):
    """Style in which each rank has the weights of some inputs of a linear layer, or rows of an embedding: outputs are summed over ranks."""

    _layouts = (Shard(-1), Replicate())
    _needs = {Linear: Shard(-1), Embedding: Replicate()}
    _cuts = {Linear: {"weight": Shard(1), "bias": Replicate()}, Embedding: {"weight": Shard(0)}}


class SequenceParallel(ParallelStyle):
    """Style in which each rank has a part of the sequence (dimension `sequence_dim`) and all parameters: for norms and dropout."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def replicate(name: str, part: Any, mesh: DeviceMesh) -> None:
            for key, param in list(part.named_parameters()):
                spread = DTensor.from_local(param, mesh, [Replicate()], run_check=False)
                part.register_parameter(key, Parameter(spread))

        def enter(part: Any, inputs: tuple, mesh: DeviceMesh) -> Any:
            value = inputs[0]
            if not isinstance(value, Tensor):
                raise ValueError(f"expecting input of {part} to be a torch.Tensor or DTensor, but got {value}")
            given = value.placements if isinstance(value, DTensor) else self.sequence_sharding
            return _redistribute_input(value, mesh, given, self.sequence_sharding)

        def leave(part: Any, outputs: Any, mesh: DeviceMesh) -> Any:
            return outputs.to_local() if self.use_local_output else outputs

        return distribute_module(module, device_mesh, replicate, enter, leave)

    def _repr_fields(self) -> dict[str, Any]:
        return {"sequence_dim": self.sequence_sharding[0].dim, "use_local_output": self.use_local_output}


def _as_tuple(layouts: Any) -> Any:
    return (layouts,) if isinstance(layouts, Placement) else layouts


class PrepareModuleInput(ParallelStyle):
    """Make the arguments of a module DTensors with `input_layouts`, and redistribute them to `desired_input_layouts`."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts, self.desired_input_layouts = _as_tuple(input_layouts), _as_tuple(desired_input_layouts)
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.with_kwargs and len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _prepare_value(self, value: Any, mesh: DeviceMesh, given: Any, wanted: Any) -> Any:
        if given is None:
            return value
        if not isinstance(value, Tensor):
            raise AssertionError("expecting input to be a torch.Tensor!")
        spread = _redistribute_input(value, mesh, (given,), (given if wanted is None else wanted,))
        return spread.to_local() if self.use_local_output else spread

    def _prepare_input_fn(self, inputs: Any, device_mesh: DeviceMesh) -> Any:
        if self.input_layouts is None:
            return inputs
        inputs = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(inputs) != len(self.input_layouts):
            raise ValueError("module inputs and input_layouts should have same length!")
        layouts = zip(inputs, self.input_layouts, self.desired_input_layouts)
        return tuple(self._prepare_value(value, device_mesh, given, wanted) for value, given, wanted in layouts)

    def _prepare_input_kwarg_fn(self, inputs: Any, kwarg_inputs: dict[str, Any], device_mesh: DeviceMesh) -> tuple:
        prepared = {
            key: self._prepare_value(
                value, device_mesh, self.input_kwarg_layouts.get(key), self.desired_input_kwarg_layouts.get(key)
            )
            for key, value in kwarg_inputs.items()
        }
        return self._prepare_input_fn(inputs, device_mesh), prepared

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        hook: Callable
        if self.with_kwargs:
            hook = lambda _, inputs, kwargs: self._prepare_input_kwarg_fn(inputs, kwargs, device_mesh)  # noqa: E731
        else:
            hook = lambda _, inputs: self._prepare_input_fn(inputs, device_mesh)  # noqa: E731
        module.register_forward_pre_hook(hook, with_kwargs=self.with_kwargs)
        return module

    _fields = (
        "input_layouts",
        "desired_input_layouts",
        "input_kwarg_layouts",
        "desired_input_kwarg_layouts",
        "use_local_output",
    )


class PrepareModuleOutput(ParallelStyle):
    """Redistribute a module's outputs from `output_layouts` to `desired_output_layouts`."""

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _as_tuple(output_layouts), _as_tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _prepare_out_fn(self, outputs: Any, device_mesh: DeviceMesh) -> Any:
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(outputs) != len(self.output_layouts):
            raise ValueError("module outputs and output_layouts should have same length!")
        prepared = []
        for value, given, wanted in zip(outputs, self.output_layouts, self.desired_output_layouts):
            if given is not None:
                value = _redistribute_input(value, device_mesh, (given,), (wanted,))
                value = value.to_local() if self.use_local_output else value
            prepared.append(value)
        return prepared[0] if len(prepared) == 1 else tuple(prepared)

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        module.register_forward_hook(lambda _, inputs, outputs: self._prepare_out_fn(outputs, device_mesh))
        return module

    _fields = ("output_layouts", "desired_output_layouts", "use_local_output")


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` combined."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def _repr_fields(self) -> dict[str, Any]:
        before = self.prepare_module_input._repr_fields()
        local = before.pop("use_local_output")
        return {**before, "use_local_input": local, **self.prepare_module_output._repr_fields()}
