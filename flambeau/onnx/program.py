"""Result of an export to ONNX: a model that can be called, optimized and saved."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

import flambeau

from ..core.tensor import Tensor
from ..utils import _pytree as pytree
from .dtypes import array_of, tensor_of
from .serialize import onnx_package

_EXTERNAL_FROM = 1024  # bytes: smaller tensors stay in the file itself


class ONNXProgram:
    """An exported model. Calling it runs it in onnxruntime."""

    def __init__(self, model_proto: Any, exported_program: Any) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program
        self._session: Any = None

    @property
    def model(self) -> Any:
        """The model as an onnx_ir.Model (package onnx_ir)."""
        import onnx_ir  # noqa: PLC0415

        return onnx_ir.from_proto(self.model_proto)

    def __repr__(self) -> str:
        return f"ONNXProgram(\n{onnx_package().printer.to_text(self.model_proto)}\n)"

    def initialize_inference_session(self, initializer: Any = None) -> None:
        """Start onnxruntime now, instead of at the first call."""
        if initializer is not None:
            self._session = initializer(self.model_proto.SerializeToString())
            return
        try:
            import onnxruntime  # noqa: PLC0415
        except ImportError as error:
            raise ModuleNotFoundError("calling an ONNXProgram needs onnxruntime: pip install onnxruntime") from error
        self._session = onnxruntime.InferenceSession(
            self.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def _named(self, args: tuple, kwargs: dict[str, Any]) -> dict[str, np.ndarray]:
        leaves = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if leaf is not None]
        names = [i.name for i in self.model_proto.graph.input]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if len(names) == len(tensors):
            leaves = tensors
        return {n: array_of(v if isinstance(v, Tensor) else flambeau.tensor(v)) for n, v in zip(names, leaves)}

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        if self._session is None:
            self.initialize_inference_session()
        return tuple(tensor_of(a) for a in self._session.run(None, self._named(args, kwargs)))

    def call_reference(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Run the model by ONNX's own (slow) reference implementation."""
        from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

        return tuple(
            tensor_of(np.asarray(a)) for a in ReferenceEvaluator(self.model_proto).run(None, self._named(args, kwargs))
        )

    def verify(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare the outputs of the file with those of the model."""
        wanted = pytree.tree_leaves(self.exported_program.module()(*args, **kwargs))
        for found, right in zip(self(*args, **kwargs), wanted):
            flambeau.testing.assert_close(found, right.detach(), rtol=1e-3, atol=1e-4)

    def optimize(self) -> None:
        """Optimize the graph by onnxscript's optimizer, after what exports with optimize=True have done already."""
        self.model_proto = importlib.import_module("onnxscript.optimizer").optimize(self.model_proto)
        self._session = None

    def apply_weights(self, state_dict: dict[str, Any]) -> None:
        """Replace parameters by those of a state dict."""
        onnx = onnx_package()
        for tensor in self.model_proto.graph.initializer:
            if tensor.name in state_dict:
                tensor.CopyFrom(onnx.numpy_helper.from_array(array_of(state_dict[tensor.name]), tensor.name))
        self._session = None

    def release(self) -> None:
        """Release the session of onnxruntime."""
        self._session = None

    def save(
        self,
        destination: Any,
        *,
        include_initializers: bool = True,
        keep_initializers_as_inputs: bool = False,
        external_data: bool | None = None,
    ) -> None:
        """Write the model to a file (or a file object). With `external_data`, and always above 2 GB, large tensors go to a separate
        file."""
        onnx = onnx_package()
        model = self.model_proto
        if keep_initializers_as_inputs or not include_initializers or external_data:
            model = onnx.ModelProto()  # what follows changes it
            model.CopyFrom(self.model_proto)
        if keep_initializers_as_inputs:
            have = {i.name for i in model.graph.input}
            for t in model.graph.initializer:
                if t.name not in have:
                    model.graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
        if not include_initializers:
            del model.graph.initializer[:]
        if hasattr(destination, "write"):
            destination.write(model.SerializeToString())
            return
        path = os.fspath(destination)
        large = sum(len(t.raw_data) for t in model.graph.initializer)
        if (external_data and large >= _EXTERNAL_FROM) or large > 1.8e9:
            beside = os.path.basename(path) + ".data"
            if os.path.exists(f"{path}.data"):
                os.remove(f"{path}.data")  # onnx appends to an existing file
            onnx.save_model(model, path, save_as_external_data=True, location=beside, size_threshold=_EXTERNAL_FROM)
        else:
            onnx.save_model(model, path)
