"""Base of all handlers: loading the model, and the three steps from request to answer."""

from __future__ import annotations

import importlib
import json
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import flambeau as torch

from ...errors import BadRequestException, error_body
from ..handler_utils.timer import timed
from ..utils.util import check_valid_pt2_backend, list_classes_from_module, load_label_mapping
from .inputs import Input, InvalidInput, example_for, of_model, of_program, tensors_of

logger = logging.getLogger(__name__)
_LONGEST_EXAMPLE = 1000  # characters in a line that is printed


class BaseHandler:
    """Loads the model that the manifest names and answers with preprocess, inference, postprocess; each may be overridden."""

    # Of the class, for handlers that begin without `super().__init__()`.
    inputs: list[Input] = []  # noqa: RUF012  never changed in place
    _from_request = False  # the tensors came from the client: it may see the model's errors about them
    _own_batch = False  # the one request of this batch has a batch dimension of its own

    def __init__(self) -> None:
        self.model: Any = None
        self.mapping: dict[str, str] | None = None
        self.device: Any = None
        self.initialized = False
        self.context: Any = None
        self.model_pt_path: str | None = None
        self.manifest: dict[str, Any] | None = None
        self.map_location: str | None = None
        self.explain = False
        self.target = 0
        self.profiler_args: dict[str, Any] = {}
        self.model_yaml_config: dict[str, Any] = {}

    # -- loading --

    def initialize(self, context: Any) -> None:
        """Choose the device, load the model and the names of its classes (index_to_name.json)."""
        self.model_yaml_config = getattr(context, "model_yaml_config", None) or {}
        properties = context.system_properties
        gpu = properties.get("gpu_id")
        self.map_location = "cuda" if gpu is not None and torch.cuda.is_available() else "cpu"
        self.device = torch.device(f"cuda:{gpu}" if self.map_location == "cuda" else "cpu")
        self.manifest = context.manifest
        folder = properties.get("model_dir")
        described = self.manifest["model"]
        if described.get("serializedFile"):
            self.model_pt_path = os.path.join(folder, described["serializedFile"])
        if described.get("modelFile"):
            self.model = self._load_pickled_model(folder, described["modelFile"], self.model_pt_path)
            self.model.to(self.device)
            self.model.eval()
        else:
            self.model = self._load_serialized(self.model_pt_path)
        self.inputs = self.inputs or of_model(self.model)
        self._compile()
        self.mapping = load_label_mapping(os.path.join(folder, "index_to_name.json"))
        self.initialized = True

    def _load_serialized(self, path: str | None) -> Any:
        """Load a model that needs no code of its own, by the extension of its file."""
        if path is None:
            raise RuntimeError("No model weights could be loaded")
        if path.endswith((".pt", ".pth", ".ts")):
            model = self._load_torchscript_model(path)
            model.eval()
            return model
        if path.endswith(".pt2"):
            program = torch.export.load(path)
            self.inputs = of_program(program)
            return program.module()
        if path.endswith(".onnx"):
            return self._load_onnx_model(path)
        if path.endswith(".so"):
            return self._load_torch_export_aot_compile(path)
        raise RuntimeError("No model weights could be loaded")

    def _load_torchscript_model(self, model_pt_path: str) -> Any:
        return torch.jit.load(model_pt_path, map_location=self.device)

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Any:
        """Load a library that `flambeau.export_library` wrote."""
        try:
            return torch.load_library(model_so_path)
        except (OSError, RuntimeError) as problem:
            raise NotImplementedError(
                f"{os.path.basename(model_so_path)} cannot be used: {problem}. Libraries compiled ahead of time by PyTorch need"
                " PyTorch's own C++ library: archive what flambeau.export_library writes, or torch.export.save (.pt2)."
            ) from problem

    def _load_onnx_model(self, path: str) -> Any:
        """Return a session of onnxruntime if that is installed, as in TorchServe; else a module that runs the file here."""
        try:
            import onnxruntime  # noqa: PLC0415  an optional package
        except ImportError:
            return torch.onnx.load(path, trainable=False).to(self.device).eval()
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any:
        """Instantiate the one class that the model's file defines, and load its weights."""
        if not os.path.isfile(os.path.join(model_dir, model_file)):
            raise RuntimeError("Missing the model.py file")
        module = importlib.import_module(model_file.split(".")[0])
        classes = list_classes_from_module(module)
        if len(classes) != 1:
            raise ValueError(f"Expected only one class as model definition. {classes}")
        model = classes[0]()
        if model_pt_path:
            model.load_state_dict(torch.load(model_pt_path, map_location=self.device))
        return model

    def _compile(self) -> None:
        """Compile the model with torch.compile if `pt2:` in model-config.yaml asks for it, with its options."""
        asked = self.model_yaml_config.get("pt2")
        if not asked or (isinstance(asked, dict) and "export" in asked):
            return
        options = {"backend": asked} if isinstance(asked, str) else dict(asked.get("compile", asked))
        if not options.pop("enable", True):
            return
        if "backend" not in options or check_valid_pt2_backend(options["backend"]):
            self.model = torch.compile(self.model, **options)
            logger.info("Compiled model with %s", ", ".join(f"{k} {v}" for k, v in options.items()))

    # -- answering --

    @timed
    def preprocess(self, data: Any) -> Any:
        """Convert requests to a tensor, or to a dictionary of tensors for a model with several inputs. Each request is one example, as
        JSON: nested lists, or an object with a value for each input."""
        self._from_request = type(self).preprocess is BaseHandler.preprocess
        if not data or not isinstance(data[0], dict):
            return self._array(data)
        rows = [tensors_of(row, self.inputs or [Input("data")]) for row in data]
        if len(rows) > 1 and not self._fit_together(rows):
            raise InvalidInput("These requests do not fit into one batch.")  # `_answers` takes them one by one
        self._own_batch = rows[0][1]
        joined = {name: torch.cat([row[name] for row, _ in rows]).to(self.device) for name in rows[0][0]}
        return joined if len(joined) > 1 else next(iter(joined.values()))

    def _array(self, data: Any) -> Any:
        try:
            return torch.as_tensor(data, device=self.device)
        except (ValueError, TypeError) as e:
            if not self._from_request:
                raise
            raise InvalidInput(f"The request is no array of numbers: {e}") from e

    def _fit_together(self, rows: list[tuple[dict[str, Any], bool]]) -> bool:
        """Return whether requests can form a batch: equal shapes, one example each, and no more than the model's fixed batch size."""
        first = {name: t.shape for name, t in rows[0][0].items()}
        fixed = [i.shape[0] for i in self.inputs if i.shape and i.shape[0] is not None]
        alike = all({n: t.shape for n, t in row.items()} == first and not own for row, own in rows)
        return alike and all(size == len(rows) for size in fixed)

    @timed
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the model's outputs, computed without gradients."""
        try:
            with torch.inference_mode():
                return self._run_model(data, *args, **kwargs)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as e:  # the last: guards of a .pt2
            if not self._from_request or "CUDA" in str(e) or "memory" in str(e):
                raise
            raise InvalidInput(f"The model cannot take this input: {e}") from e

    def _run_model(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        if not callable(self.model):
            return self._run_session(data)
        if not isinstance(data, dict):
            return self.model(data.to(self.device), *args, **kwargs)
        needed = [data.pop(i.name) for i in self.inputs if not i.is_optional]
        return self.model(*needed, *args, **data, **kwargs)

    def _run_session(self, data: Any) -> Any:
        """Run a session of onnxruntime, which takes NumPy arrays by name."""
        fed = data if isinstance(data, dict) else {self.model.get_inputs()[0].name: data}
        try:
            return self.model.run(None, {name: t.cpu().numpy() for name, t in fed.items()})
        except Exception as e:  # its errors have no class in common but this one
            raise RuntimeError(str(e)) from e

    @timed
    def postprocess(self, data: Any) -> Any:
        """Return the (first) output as a list, one item for each request."""
        rows = (data[0] if isinstance(data, (tuple, list)) else data).tolist()
        return [rows] if self._own_batch else rows

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        """Answer a batch of requests."""
        return self.answer(data, context, self._answers)

    def answer(self, data: list[Any], context: Any, predict: Callable[[list[Any]], list[Any]]) -> list[Any]:
        """Answer a batch: with a description, with explanations, or with the predictions for its data."""
        start = time.perf_counter()
        self.context = context
        self._from_request = self._own_batch = False
        if self._is_describe():
            output = [self.describe_handle()]
        elif self._is_explain():
            output = self.explain_handle(self.preprocess(data), data)
        else:
            output = predict(data)
        context.metrics.add_time("HandlerTime", round((time.perf_counter() - start) * 1000, 2), None, "ms")
        return output

    def _answers(self, data: list[Any]) -> list[Any]:
        """Return the answers to a batch; if it fails, each request is handled alone, so that only the wrong one fails."""
        try:
            return self.postprocess(self.inference(self.preprocess(data)))
        except InvalidInput:
            if len(data) == 1:
                raise
        return [self._handle_alone(row, index) for index, row in enumerate(data)]

    def _handle_alone(self, row: Any, index: int) -> Any:
        self._from_request = self._own_batch = False
        try:
            return self.postprocess(self.inference(self.preprocess([row])))[0]
        except InvalidInput as e:
            return self._refusal(index, e)

    def _refusal(self, index: int, problem: InvalidInput) -> bytes:
        """Make the answer to one request of the batch an error."""
        self.context.set_response_status(problem.error_code, "", index)
        self.context.set_response_content_type(index, "application/json")
        return error_body(problem.error_code, BadRequestException.__name__, problem.message)

    def example(self) -> tuple[str, str] | None:
        """Return a content type and a body that the model has answered; None if none is known."""
        value = example_for(self.inputs, self.model)
        if value is None or type(self).preprocess is not BaseHandler.preprocess:
            return None
        text = json.dumps(value)
        try:
            self.postprocess(self.inference(self.preprocess([{"body": value}])))
        except Exception as problem:  # whatever it is: what does not work is not shown
            logger.info("no example is shown: %s", problem)
            return None
        return ("application/json", text) if len(text) <= _LONGEST_EXAMPLE else None

    # -- other questions --

    def explain_handle(self, data_preprocess: Any, raw_data: list[Any]) -> Any:
        """Return the explanations that the handler's `get_insights` computes for a batch."""
        row, target, inputs = raw_data[0], 0, None
        if isinstance(row, dict):
            inputs = row.get("data") or row.get("body")
            target = row.get("target") or 0
        return self.get_insights(data_preprocess, inputs, int(target))

    def get_insights(self, tensor_data: Any, raw_data: Any, target: int = 0) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no get_insights: it cannot explain its answers")

    def describe_handle(self) -> Any:
        """Return the text that `GET /models/{name}?customized=true` adds to the description."""
        return None

    def _header_is_set(self, header: str) -> bool:
        return bool(self.context) and self.context.get_request_header(0, header) == "True"

    def _is_explain(self) -> bool:
        self.explain = self._header_is_set("explain")
        return self.explain

    def _is_describe(self) -> bool:
        return self._header_is_set("describe")

    def get_device(self) -> Any:
        """Return the device of the model."""
        return self.device
