"""Handlers: the built-in ones, and those written for TorchServe; in a worker and by themselves."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import flambeau as torch
from flambeau.serve import archiver
from flambeau.serve.ts.context import Context, RequestProcessor
from flambeau.serve.ts.handler_utils.micro_batching import MicroBatching
from flambeau.serve.ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from flambeau.serve.ts.metrics.metric_type_enum import MetricTypes
from flambeau.serve.ts.torch_handler.attribution import integrated_gradients
from flambeau.serve.ts.torch_handler.base_handler import BaseHandler
from flambeau.serve.ts.torch_handler.request_envelope.json import JSONEnvelope
from flambeau.serve.ts.torch_handler.request_envelope.kserve import KServeEnvelope
from flambeau.serve.ts.torch_handler.request_envelope.kservev2 import KServev2Envelope
from flambeau.serve.ts.torch_handler.tensor_handler import TensorHandler
from flambeau.serve.ts.torch_handler.text_classifier import TextClassifier
from flambeau.serve.ts.utils.util import load_label_mapping, map_class_to_label

from .serving import Client, make_model

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 8, stride=8)
        self.head = nn.Linear(4, 10)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))
"""
GPT = """
import torch
from torch import nn

class Gpt(nn.Module):
    def __init__(self, vocabulary=256, width=16, heads=2, layers=2):
        super().__init__()
        self.heads = heads
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.attention = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.feed = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, past=None, mask=None):
        B, T = tokens.shape
        if mask is None:
            places = torch.arange(T)[None]
            allowed = torch.ones(T, T, dtype=torch.bool).tril()[None, None]
        else:
            places = mask.sum(1, keepdim=True) - 1
            allowed = mask[:, None, None]
        x, caches = self.token(tokens) + self.place(places), []
        for i, (attention, feed) in enumerate(zip(self.attention, self.feed)):
            q, k, v = (p.reshape(B, T, self.heads, -1).transpose(1, 2) for p in attention(x).chunk(3, -1))
            if past is not None:
                k, v = torch.cat([past[i][0], k], 2), torch.cat([past[i][1], v], 2)
            caches.append((k, v))
            scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
            weights = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
            x = x + (weights @ v).transpose(1, 2).reshape(B, T, -1)
            x = x + torch.tanh(feed(x))
        return self.head(x), caches
"""


def model_of(source: str, name: str):
    space: dict = {}
    exec(
        source.replace("import torch\n", "import flambeau as torch\n").replace(
            "from torch import", "from flambeau import"
        ),
        space,
    )
    torch.manual_seed(0)
    return space[name]()


def package(
    store: Path, name: str, source: str, cls: str, handler: str, labels: dict | None = None, config: dict | None = None
):
    model = model_of(source, cls)
    (store / f"{name}_net.py").write_text(source)
    torch.save(model.state_dict(), store / f"{name}.pt")
    extra = {}
    if labels:
        (store / "index_to_name.json").write_text(json.dumps(labels))
        extra["extra_files"] = str(store / "index_to_name.json")
    if config:
        (store / f"{name}.yaml").write_text(json.dumps(config))
        extra["config_file"] = str(store / f"{name}.yaml")
    archiver.package_model(name, version="1.0", handler=handler, model_file=str(store / f"{name}_net.py"), force=True,
                           serialized_file=str(store / f"{name}.pt"), export_path=str(store), **extra)  # fmt: skip
    return model


def picture() -> bytes:
    image = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    image.fromarray(np.random.default_rng(0).integers(0, 255, (300, 260, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_image_classifier(client: Client, store: Path):
    labels = {str(i): [f"n{i}", f"class {i}"] for i in range(10)}
    model = package(store, "pictures", NET, "Net", "image_classifier", labels)
    assert client.register("pictures.mar", batch_size=4, max_batch_delay=50).status == 200
    body = picture()
    answer = client.predict("pictures", body).json()
    assert len(answer) == 5
    assert all(name.startswith("class ") for name in answer)
    from PIL import Image

    from flambeau.serve.ts.torch_handler.image_classifier import ImageClassifier

    tensor = ImageClassifier.image_processing(Image.open(io.BytesIO(body)))[None]
    wanted = torch.softmax(model.eval()(tensor), 1)[0]
    for name, probability in answer.items():
        assert probability == pytest.approx(wanted[int(name.split()[1])].item(), rel=1e-4)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: client.predict("pictures", body).json(), range(4)))
    assert all(a == pytest.approx(answer, rel=1e-4) for a in together)


def test_explanations_of_a_picture(client: Client, store: Path):
    if client.manage("GET", "/models/pictures").status != 200:
        package(store, "pictures", NET, "Net", "image_classifier", {str(i): f"class {i}" for i in range(10)})
        client.register("pictures.mar")
    answer = np.array(client.ask("POST", "/explanations/pictures", picture()).json())
    assert answer.shape == (3, 224, 224)
    assert np.abs(answer).max() > 0


def test_integrated_gradients_add_up():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    x = torch.randn(4, 6)
    parts = integrated_gradients(net, x, 1, 50)
    wanted = (net(x) - net(torch.zeros_like(x)))[:, 1]
    torch.testing.assert_close(parts.sum(1), wanted, rtol=1e-3, atol=1e-3)


def alone(model, prompt: list[int], count: int) -> str:
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens]))[0][0, -1].argmax()))
    return "".join(bytes([t % 256]).decode("latin-1") for t in tokens[len(prompt) :])


def test_text_is_generated_in_continuous_batches(client: Client, store: Path):
    config = {"continuousBatching": True, "batchSize": 3, "maxBatchDelay": 5, "minWorkers": 1, "maxWorkers": 1}
    model = package(store, "gpt", GPT, "Gpt", "text_generator", config=config)
    assert client.register("gpt.mar").status == 200
    asked = [([1, 2, 3], 8), ([9] * 7, 3), ([200, 4], 12), ([5], 1), ([7, 7, 7, 7], 6)]

    def ask(question):
        prompt, count = question
        return client.predict("gpt", {"prompt": prompt, "max_new_tokens": count})

    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(ask, asked))
    assert [a.headers.get("transfer-encoding") for a in answers] == ["chunked"] * 5
    assert [a.body.decode() for a in answers] == [alone(model, *question) for question in asked]


STATEFUL = """
    from ts.torch_handler.base_handler import BaseHandler

    class Sums(BaseHandler):
        def initialize(self, context):
            self.sums, self.context = {}, context

        def handle(self, data, context):
            answers = []
            for i, row in enumerate(data):
                name = context.get_sequence_id(i)
                if context.get_request_header(i, context.header_key_sequence_start):
                    self.sums[name] = 0
                    context.set_response_header(i, context.header_key_sequence_id, name)
                self.sums[name] += int(row["body"])
                answers.append(str(self.sums[name]))
            return answers
"""


def test_sequences_keep_their_state(client: Client, store: Path):
    config = {"sequenceBatching": True, "sequenceMaxIdleMSec": 5000, "maxNumSequence": 8, "maxSequenceJobQueueSize": 4,
              "batchSize": 2, "maxBatchDelay": 20, "minWorkers": 2, "maxWorkers": 2}  # fmt: skip
    make_model(store, "sums", STATEFUL, config=config)
    assert client.register("sums.mar").status == 200

    def one(numbers):
        first = client.predict("sums", str(numbers[0]).encode())
        name = first.headers["ts_request_sequence_id"]
        results = [first.body]
        for i, number in enumerate(numbers[1:], 2):
            headers = {"ts_request_sequence_id": name}
            if i == len(numbers):
                headers["ts_request_sequence_end"] = "true"
            results.append(client.predict("sums", str(number).encode(), headers).body)
        return [int(r) for r in results]

    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(one, [[i, 1, 2, 3] for i in range(6)]))
    assert runs == [[i, i + 1, i + 3, i + 6] for i in range(6)]
    deadline = time.monotonic() + 5  # the last answer is sent a moment before its sequence is closed
    while client.server.registry.get("sums").batcher.sequences and time.monotonic() < deadline:
        time.sleep(0.01)
    assert client.server.registry.get("sums").batcher.sequences == {}


def context_for(count: int, headers: dict | None = None) -> Context:
    context = Context(
        "m",
        ".",
        {"model": {"modelName": "m", "modelVersion": "1.0"}},
        count,
        None,
        "0",
        True,
        MetricsCacheYamlImpl(emit=lambda l: None),
        {},
    )
    context.request_ids = {i: f"id{i}" for i in range(count)}
    context.request_processor = [RequestProcessor(dict(headers or {})) for _ in range(count)]
    return context


def test_context():
    context = context_for(2, {"a": "1", "ts_request_sequence_id": "s"})
    assert context.get_request_id(1) == "id1"
    assert context.get_request_header(0, "a") == "1"
    assert context.get_all_request_header(1)["a"] == "1"
    assert context.get_sequence_id(0) == "s"
    context.set_response_content_type(0, "text/plain")
    context.set_response_header(1, "k", "v")
    context.set_response_status(404, "no", 1)
    assert context.get_response_content_type(0) == "text/plain"
    assert context.get_response_headers(1) == {"k": "v"}
    assert context.get_response_status(1) == (404, "no")
    context.set_all_response_status(500, "all")
    assert context.get_response_status(0) == (500, "all")
    assert context.system_properties["server_name"] == "MMS"


class Doubler(BaseHandler):
    def preprocess(self, data):
        return torch.tensor([float(row["body"]) for row in data])

    def inference(self, data, *args, **kwargs):
        return data * 2

    def postprocess(self, data):
        return data.tolist()


def test_micro_batches_come_back_in_order():
    handler = Doubler()
    batching = MicroBatching(handler, micro_batch_size=3, parallelism={"preprocess": 2})
    try:
        data = [{"body": str(i)} for i in range(10)]
        assert batching(data, context_for(10)) == [2.0 * i for i in range(10)]
        batching.parallelism = {"inference": 2}
        assert len(batching.thread_groups["inference"]) == 2
        with pytest.raises(ValueError, match="could not convert"):
            batching(data[:2] + [{"body": "x"}], context_for(3))
    finally:
        batching.shutdown()


def test_envelopes():
    def handle(data, context):
        return [len(row) if isinstance(row, list) else row for row in data]

    rows = [{"body": b'{"instances": [[1, 2], [3]]}'}, {"body": {"instances": [[4, 5, 6]]}}]
    assert JSONEnvelope(handle).handle(rows, context_for(2)) == [{"predictions": [2, 1]}, {"predictions": [3]}]
    assert KServeEnvelope(handle).handle(rows[:1], context_for(1)) == [{"predictions": [2, 1]}]
    explained = context_for(1, {"explain": "True"})
    assert KServeEnvelope(handle).handle(rows[:1], explained) == [{"explanations": [2, 1]}]
    tensors = {"id": "q", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "INT64", "data": [1, 2, 3, 4]}]}
    envelope = KServev2Envelope(lambda data, context: [np.array(data[0]["data"]).sum(0)])
    (answer,) = envelope.handle([{"body": json.dumps(tensors).encode()}], context_for(1))
    assert answer == {"id": "q", "model_name": "m", "model_version": "1.0",
                      "outputs": [{"name": "x", "datatype": "INT64", "data": [4, 6], "shape": [2]}]}  # fmt: skip


def test_metrics_are_lines():
    lines: list[str] = []
    metrics = MetricsCacheYamlImpl(emit=lines.append)
    metrics.model_name, metrics.request_ids = "m", {0: "r0", 1: "r1"}
    metrics.add_counter("Hits", 2)
    metrics.add_time("Spent", 1.5, 0)
    metrics.add_size("Size", 3, None, "kB")
    metrics.add_percent("Part", 50)
    metrics.add_error("Wrong", 1)
    own = metrics.add_metric_to_cache("Own", "things", ["Colour"], MetricTypes.HISTOGRAM)
    own.add_or_update(4, ["red"])
    own.add_or_update(4, [])  # labels that do not fit are not reported
    metrics.get_metric("Hits").add_or_update(-1, ["m", "Model"])  # counters do not fall
    heads = [line.split("|#hostname")[0] for line in lines]
    assert heads == [
        "Hits.Count:2|#ModelName:m,Level:Model|#type:COUNTER",
        "Spent.Milliseconds:1.5|#ModelName:m,Level:Model|#type:GAUGE",
        "Size.Kilobytes:3|#ModelName:m,Level:Model|#type:GAUGE",
        "Part.Percent:50|#ModelName:m,Level:Model|#type:GAUGE",
        "Wrong.unit:1|#Level:Error|#type:COUNTER",
        "Own.things:4|#Colour:red|#type:HISTOGRAM",
    ]
    assert lines[0].endswith(",r0,r1")
    assert lines[1].endswith(",r0")
    with pytest.raises(ValueError, match="unit"):
        metrics.add_time("x", 1, None, "hours")
    with pytest.raises(KeyError):
        metrics.get_metric("Nothing")


def test_labels(tmp_path: Path):
    file = tmp_path / "index_to_name.json"
    assert load_label_mapping(str(file)) is None
    file.write_text('{"0": ["n0", "cat"], "1": "dog"}')
    assert load_label_mapping(str(file)) == {"0": "cat", "1": "dog"}
    assert map_class_to_label([[0.7, 0.3]], {"0": "cat", "1": "dog"}, [[1, 0]]) == [{"dog": 0.7, "cat": 0.3}]
    assert map_class_to_label([[0.7, 0.3]]) == [{"0": 0.7, "1": 0.3}]


def test_text_classifier_reads_words_and_pairs():
    handler = TextClassifier()
    handler.device = torch.device("cpu")
    handler.source_vocab = {"it": 1, "is": 2, "good": 3, "it is": 4, "is good": 5}
    numbers, tokens = handler.preprocess([{"body": b"<b>It's</b> g\xc3\xb6od!"}])
    assert tokens == ["it", "is", "good"]
    assert numbers.tolist() == [1, 2, 3, 4, 5]


def test_describe_and_device():
    handler = Doubler()
    handler.context = SimpleNamespace(get_request_header=lambda i, key: "True" if key == "describe" else None)
    assert handler._is_describe()
    assert not handler._is_explain()
    assert handler.get_device() is None


def test_ts_names_resolve_when_posing():
    code = """
import flambeau
flambeau.install_as_torch()
from ts.torch_handler.base_handler import BaseHandler
from ts.torch_handler.image_classifier import ImageClassifier
from ts.context import Context
from ts.metrics.dimension import Dimension
from ts.metrics.metric_type_enum import MetricTypes
from ts.handler_utils.timer import timed
from ts.handler_utils.micro_batching import MicroBatching
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.protocol.otf_message_handler import send_intermediate_predict_response
from ts.utils.util import PredictionException, list_classes_from_module
from ts.service import emit_metrics
import ts, flambeau.serve.ts.context
assert flambeau.serve.ts.context.Context is Context
print(ts.__version__, issubclass(ImageClassifier, BaseHandler))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["0.12.0", "True"], done.stderr


def write_serialized(framework: ModuleType, kind: str, path: Path) -> list[float]:
    """A small model of Flambeau's or PyTorch's in a file; what it makes of ones."""
    framework.manual_seed(0)
    model = framework.nn.Sequential(framework.nn.Linear(4, 8), framework.nn.ReLU(), framework.nn.Linear(8, 3)).eval()
    if kind == "pt":
        framework.jit.script(model).save(str(path))
    elif kind == "onnx":
        batch = framework.export.Dim("batch")
        framework.onnx.export(model, (framework.ones(2, 4),), str(path), dynamic_shapes=({0: batch},))
    else:
        batch = framework.export.Dim("batch")
        program = framework.export.export(model, (framework.ones(2, 4),), dynamic_shapes=({0: batch},))
        framework.export.save(program, str(path))
    return model(framework.ones(4)).tolist()


@pytest.mark.parametrize(
    "kind, writer", [("pt", "flambeau"), ("pt", "torch"), ("pt2", "flambeau"), ("pt2", "torch"), ("onnx", "flambeau")]
)
def test_serialized_models_need_no_code(client: Client, store: Path, kind: str, writer: str):
    name = f"serialized-{kind}-{writer}"
    framework = torch if writer == "flambeau" else pytest.importorskip("torch")
    if kind == "onnx":
        pytest.importorskip("onnx", reason="ONNX files need the package onnx")
    wanted = write_serialized(framework, kind, store / f"{name}.{kind}")
    archiver.package_model(name, version="1.0", handler="tensor_handler", serialized_file=str(store / f"{name}.{kind}"),
                           export_path=str(store), force=True)  # fmt: skip
    assert client.register(f"{name}.mar").status == 200
    assert client.predict(name, b"[1, 1, 1, 1]").json() == pytest.approx(wanted, rel=1e-5)


def test_sessions_of_onnxruntime_answer():
    class Session:
        def get_inputs(self):
            return [SimpleNamespace(name="x")]

        def run(self, wanted, inputs):
            return [inputs["x"] * 2]

    handler = TensorHandler()
    handler.model, handler.device = Session(), torch.device("cpu")
    inputs = handler.preprocess([{"body": b"[1, 2]"}, {"data": "[3, 4]"}])
    assert handler.postprocess(handler.inference(inputs)) == [[2, 4], [6, 8]]


@pytest.mark.parametrize("ending", ["pt", "onnx", "so", "xyz"])
def test_models_that_cannot_be_loaded_say_why(client: Client, store: Path, ending: str):
    (store / f"raw.{ending}").write_bytes(b"nothing")
    archiver.package_model(f"raw-{ending}", version="1.0", handler="image_classifier", serialized_file=str(store / f"raw.{ending}"),
                           export_path=str(store), force=True)  # fmt: skip
    assert client.register(f"raw-{ending}.mar").status == 500
