"""What all handlers share: loading the model, and the three steps from request to answer."""

from __future__ import annotations

import importlib
import logging
import os
import time
from typing import Any

import flambeau as torch

from ..handler_utils.timer import timed
from ..utils.util import check_valid_pt2_backend, list_classes_from_module, load_label_mapping

logger = logging.getLogger(__name__)


class BaseHandler:
    """Loads the model that the manifest names and answers with preprocess, inference, postprocess; each may be overridden."""

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
        """Chooses the device, loads the model and the names of its classes (index_to_name.json)."""
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
        self._compile()
        self.mapping = load_label_mapping(os.path.join(folder, "index_to_name.json"))
        self.initialized = True

    def _load_serialized(self, path: str | None) -> Any:
        """A model that needs no code of its own, told by the ending of its file."""
        if path is None:
            raise RuntimeError("No model weights could be loaded")
        if path.endswith((".pt", ".pth", ".ts")):
            model = self._load_torchscript_model(path)
            model.eval()
            return model
        if path.endswith(".pt2"):
            return torch.export.load(path).module()
        if path.endswith(".onnx"):
            return self._load_onnx_model(path)
        if path.endswith(".so"):
            return self._load_torch_export_aot_compile(path)
        raise RuntimeError("No model weights could be loaded")

    def _load_torchscript_model(self, model_pt_path: str) -> Any:
        return torch.jit.load(model_pt_path, map_location=self.device)

    def _load_torch_export_aot_compile(self, model_so_path: str) -> Any:
        """A library that `flambeau.export_library` wrote."""
        try:
            return torch.load_library(model_so_path)
        except (OSError, RuntimeError) as problem:
            raise NotImplementedError(
                f"{os.path.basename(model_so_path)} cannot be used: {problem}. Libraries compiled ahead of time by PyTorch need"
                " PyTorch's own C++ library: archive what flambeau.export_library writes, or torch.export.save (.pt2)."
            ) from problem

    def _load_onnx_model(self, path: str) -> Any:
        """A session of onnxruntime where that is installed, as with TorchServe; else a module of Flambeau's own."""
        try:
            import onnxruntime  # noqa: PLC0415  an optional package
        except ImportError:
            return torch.onnx.load(path, trainable=False).to(self.device).eval()
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def _load_pickled_model(self, model_dir: str, model_file: str, model_pt_path: str | None) -> Any:
        """Makes the one class that the model's file defines, and gives it its weights."""
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
        """`pt2:` of model-config.yaml asks for torch.compile, with its options."""
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
        """Requests to a tensor."""
        return torch.as_tensor(data, device=self.device)

    @timed
    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """The model's outputs, without gradients."""
        with torch.inference_mode():
            return self.model(data.to(self.device), *args, **kwargs)

    @timed
    def postprocess(self, data: Any) -> Any:
        """The outputs as a list, one item for each request."""
        return data.tolist()

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        """Answers a batch of requests."""
        start = time.perf_counter()
        self.context = context
        if self._is_describe():
            output = [self.describe_handle()]
        else:
            prepared = self.preprocess(data)
            if self._is_explain():
                output = self.explain_handle(prepared, data)
            else:
                output = self.postprocess(self.inference(prepared))
        context.metrics.add_time("HandlerTime", round((time.perf_counter() - start) * 1000, 2), None, "ms")
        return output

    # -- other questions --

    def explain_handle(self, data_preprocess: Any, raw_data: list[Any]) -> Any:
        """Which parts of the input the answer rests on: what `get_insights` of the handler says."""
        row, target, inputs = raw_data[0], 0, None
        if isinstance(row, dict):
            inputs = row.get("data") or row.get("body")
            target = row.get("target") or 0
        return self.get_insights(data_preprocess, inputs, int(target))

    def get_insights(self, tensor_data: Any, raw_data: Any, target: int = 0) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no get_insights: it cannot explain its answers")

    def describe_handle(self) -> Any:
        """What `GET /models/{name}?customized=true` shows besides the description."""
        return None

    def _asked(self, header: str) -> bool:
        return bool(self.context) and self.context.get_request_header(0, header) == "True"

    def _is_explain(self) -> bool:
        self.explain = self._asked("explain")
        return self.explain

    def _is_describe(self) -> bool:
        return self._asked("describe")

    def get_device(self) -> Any:
        """Where the model is."""
        return self.device
