"""gRPC: the services, messages and status codes are TorchServe's."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator

import pytest

grpc = pytest.importorskip("grpc", reason="gRPC needs flambeau[serve]")
pytest.importorskip("google.protobuf", reason="gRPC needs flambeau[serve]")

from flambeau.serve.protos import CLASSES, INFERENCE, MANAGEMENT, OPEN_INFERENCE, SERVICES  # noqa: E402

from .serving import Client, make_model, running  # noqa: E402
from .test_handlers import STATEFUL  # noqa: E402


class Stub:
    """Calls a service by the tables the server itself is made of."""

    def __init__(self, channel, service: str):
        for method, (request, answer, request_stream, answer_stream) in SERVICES[service].items():
            make = {
                (False, False): channel.unary_unary,
                (False, True): channel.unary_stream,
                (True, True): channel.stream_stream,
            }
            call = make[request_stream, answer_stream](
                f"/{service}/{method}", CLASSES[request].SerializeToString, CLASSES[answer].FromString)  # fmt: skip
            setattr(self, method, call)


@pytest.fixture(scope="module")
def served(store, tmp_path_factory) -> Iterator[Client]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOG_LOCATION", str(tmp_path_factory.mktemp("logs")))
        patch.setenv("METRICS_LOCATION", str(tmp_path_factory.mktemp("metrics")))
        with running(store, grpc_inference_port="0", grpc_management_port="0") as client:
            for name in ("echo", "stream", "moody"):
                assert client.register(f"{name}.mar").status == 200
            yield client


@pytest.fixture(scope="module")
def stubs(served: Client):
    inference, management = (grpc.insecure_channel(f"127.0.0.1:{a.port}") for a in served.server._grpc.addresses)
    yield (Stub(inference, f"{INFERENCE}.InferenceAPIsService"), Stub(management, f"{MANAGEMENT}.ManagementAPIsService"),
           Stub(inference, f"{OPEN_INFERENCE}.GRPCInferenceService"))  # fmt: skip
    inference.close()
    management.close()


def request(message: str, /, **values):
    return CLASSES[message](**values)


def code(call, *arguments) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments)
    return caught.value.code().name, caught.value.details()


def test_ping(stubs):
    assert json.loads(stubs[0].Ping(CLASSES["Empty"]()).health) == {"status": "Healthy"}


def test_predictions(stubs):
    answer = stubs[0].Predictions(request("PredictionsRequest", model_name="echo", input={"data": b"hello"}))
    assert answer.prediction == b"hello"
    status, details = code(
        stubs[0].Predictions, request("PredictionsRequest", model_name="nobody", input={"data": b"x"})
    )
    assert status == "INTERNAL"
    assert details == "Model not found: nobody\norg.pytorch.serve.archive.model.ModelNotFoundException"
    assert code(stubs[0].Predictions, request("PredictionsRequest"))[0] == "INTERNAL"
    failed = request("PredictionsRequest", model_name="moody", input={"body": b"raise"})
    assert code(stubs[0].Predictions, failed) == ("INTERNAL", "Prediction failed\nInternalServerException.()")


def test_streams(stubs):
    parts = stubs[0].StreamPredictions(request("PredictionsRequest", model_name="stream", input={"data": b"x"}))
    assert [p.prediction for p in parts] == [b"part 0 ", b"part 1 ", b"part 2 ", b"end"]


def test_streams_that_are_cancelled_or_not_read(served: Client, stubs, store, monkeypatch):
    make_model(
        store,
        "flood",
        """
        from ts.handler_utils.utils import send_intermediate_predict_response

        def handle(data, context):
            for i in range(200 if data else 0):
                send_intermediate_predict_response([bytes(50_000)], context.request_ids, "ok", 200, context)
            return ["end"] if data else None
    """,
    )
    assert served.register("flood.mar").status == 200
    monkeypatch.setattr("flambeau.serve.grpc_server.MOST_UNSENT", 1 << 20)
    asked = request("PredictionsRequest", model_name="flood", input={"data": b"x"})
    cancelled = stubs[0].StreamPredictions(asked)
    next(cancelled)
    cancelled.cancel()  # the server, asking for the peer of a call that is gone, crashed
    unread = stubs[0].StreamPredictions(asked)
    next(unread)
    assert served.predict("flood", b"x").body.endswith(b"end")  # after the worker has sent all of the streams
    with pytest.raises(grpc.RpcError) as error:
        list(unread)
    assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.manage("DELETE", "/models/flood").status == 200


def test_conversations(served: Client, stubs, store):
    config = {"sequenceBatching": True, "sequenceMaxIdleMSec": 5000, "maxNumSequence": 4, "maxSequenceJobQueueSize": 10,
              "minWorkers": 1, "maxWorkers": 1, "maxBatchDelay": 1}  # fmt: skip
    source = STATEFUL.replace('self.sums[name] = 0', 'self.sums[name] = 0').replace(
        "if context.get_request_header(i, context.header_key_sequence_start):", "if name not in self.sums:").replace(
        'row["body"]', 'row["data"]')  # fmt: skip
    make_model(store, "talk", source, config=config)
    assert served.register("talk.mar").status == 200
    asked = [
        request("PredictionsRequest", model_name="talk", sequence_id="s", input={"data": str(i).encode()})
        for i in (1, 2, 3)
    ]
    answers = list(stubs[0].StreamPredictions2(iter(asked)))
    assert [(a.prediction, a.sequence_id) for a in answers] == [(b"1", "s"), (b"3", "s"), (b"6", "s")]
    (refused,) = stubs[0].StreamPredictions2(
        iter([request("PredictionsRequest", model_name="talk", input={"data": b"1"})])
    )
    assert refused.status.code == 13
    assert refused.status.message == "Parameter sequenceId is required."


def test_management(stubs, store):
    management = stubs[1]
    listed = json.loads(management.ListModels(request("ListModelsRequest", limit=100)).msg)
    assert {m["modelName"] for m in listed["models"]} >= {"echo", "stream", "moody"}
    registered = management.RegisterModel(
        request("RegisterModelRequest", url="echo.mar", model_name="g", initial_workers=1, synchronous=True))  # fmt: skip
    assert registered.msg == 'Model "g" Version: 1.0 registered with 1 initial workers'
    (found,) = json.loads(management.DescribeModel(request("DescribeModelRequest", model_name="g")).msg)
    assert found["workers"][0]["status"] == "READY"
    scaled = management.ScaleWorker(request("ScaleWorkerRequest", model_name="g", min_worker=2, synchronous=True))
    assert scaled.msg == "Workers scaled to 2 for model: g"
    assert (
        "successfully updated"
        in management.SetDefault(request("SetDefaultRequest", model_name="g", model_version="1.0")).msg
    )
    assert management.UnregisterModel(request("UnregisterModelRequest", model_name="g")).msg == 'Model "g" unregistered'


def test_status_codes_of_management(stubs):
    management = stubs[1]
    assert code(management.RegisterModel, request("RegisterModelRequest"))[0] == "INVALID_ARGUMENT"
    assert code(management.RegisterModel, request("RegisterModelRequest", url="none.mar"))[0] == "NOT_FOUND"
    assert code(management.DescribeModel, request("DescribeModelRequest", model_name="none"))[0] == "NOT_FOUND"
    assert (
        code(management.SetDefault, request("SetDefaultRequest", model_name="echo", model_version="7"))[0]
        == "NOT_FOUND"
    )
    wrong = request("ScaleWorkerRequest", model_name="echo", min_worker=2, max_worker=1)
    assert code(management.ScaleWorker, wrong)[0] == "INVALID_ARGUMENT"
    assert (
        code(management.ScaleWorker, request("ScaleWorkerRequest", model_name="echo", min_worker=-1))[0] == "INTERNAL"
    )


def test_open_inference(served: Client, stubs, store):
    make_model(
        store,
        "tensors",
        """
        import json

        def handle(data, context):
            if data is None:
                return None
            inputs = data[0]["body"]["inputs"]
            outputs = [{**t, "data": [2 * v for v in t["data"]]} for t in inputs]
            return [{"id": data[0]["body"]["id"], "outputs": outputs}]
    """,
    )
    assert served.register("tensors.mar").status == 200
    open_inference = stubs[2]
    assert open_inference.ServerLive(CLASSES["ServerLiveRequest"]()).live
    assert open_inference.ServerReady(CLASSES["ServerReadyRequest"]()).ready
    assert open_inference.ServerMetadata(CLASSES["ServerMetadataRequest"]()).name == "Torchserve"
    assert open_inference.ModelReady(request("ModelReadyRequest", name="tensors")).ready
    assert list(open_inference.ModelMetadata(request("ModelMetadataRequest", name="tensors")).versions) == ["1.0"]
    tensor = {"name": "x", "datatype": "FP32", "shape": [2]}
    plain = request(
        "ModelInferRequest", model_name="tensors", id="q", inputs=[{**tensor, "contents": {"fp32_contents": [1.5, 2]}}]
    )
    raw = request("ModelInferRequest", model_name="tensors", inputs=[tensor], raw_input_contents=[b"\0\0\xc0?\0\0\0@"])
    for asked in (plain, raw):
        answer = open_inference.ModelInfer(asked)
        assert list(answer.outputs[0].contents.fp32_contents) == [3.0, 4.0]
    assert open_inference.ModelInfer(plain).id == "q"
    bad = request("ModelInferRequest", model_name="tensors", inputs=[{**tensor, "datatype": "NO"}])
    assert code(open_inference.ModelInfer, bad)[0] == "INVALID_ARGUMENT"
    short = request("ModelInferRequest", model_name="tensors", inputs=[tensor], raw_input_contents=[b"abc"])
    assert code(open_inference.ModelInfer, short)[0] == "INVALID_ARGUMENT"


def test_keys(start, tmp_path):
    client = start(
        grpc_inference_port="0", grpc_management_port="0", disable_token_authorization="false", enable_model_api="false"
    )
    keys = json.loads((tmp_path / "key_file.json").read_text())
    inference, management = (grpc.insecure_channel(f"127.0.0.1:{a.port}") for a in client.server._grpc.addresses)
    stub = Stub(management, f"{MANAGEMENT}.ManagementAPIsService")
    assert code(stub.ListModels, request("ListModelsRequest"))[0] == "PERMISSION_DENIED"
    good = (("authorization", f"Bearer {keys['management']['key']}"),)
    assert "models" in stub.ListModels(request("ListModelsRequest"), metadata=good).msg
    wrong = (("authorization", f"Bearer {keys['inference']['key']}"),)
    with pytest.raises(grpc.RpcError):
        stub.ListModels(request("ListModelsRequest"), metadata=wrong)
    with pytest.raises(grpc.RpcError) as caught:
        stub.RegisterModel(request("RegisterModelRequest", url="echo.mar"), metadata=good)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    inference.close()
    management.close()


def test_random_messages_get_clean_answers(served: Client):
    """Bytes changed and cut at random: an answer or a status, and the server goes on."""
    dice = random.Random(int(os.environ.get("FUZZ_SEED", "0")))
    channels = [grpc.insecure_channel(f"127.0.0.1:{a.port}") for a in served.server._grpc.addresses]
    good = {
        f"/{INFERENCE}.InferenceAPIsService/Predictions": request("PredictionsRequest", model_name="echo", input={"data": b"x"}),
        f"/{OPEN_INFERENCE}.GRPCInferenceService/ModelInfer": request(
            "ModelInferRequest", model_name="echo", inputs=[{"name": "a", "datatype": "FP32", "shape": [1]}]),
        f"/{MANAGEMENT}.ManagementAPIsService/DescribeModel": request("DescribeModelRequest", model_name="echo", customized=True),
        f"/{MANAGEMENT}.ManagementAPIsService/ListModels": request("ListModelsRequest", limit=3, next_page_token=1),
    }  # fmt: skip
    for _ in range(int(os.environ.get("FUZZ_ROUNDS", "100"))):
        method = dice.choice(list(good))
        data = bytearray(good[method].SerializeToString())
        for _ in range(dice.randint(1, 4)):
            if data and dice.random() < 0.7:
                data[dice.randrange(len(data))] = dice.randrange(256)
            else:
                data[dice.randrange(len(data) + 1) :] = bytes(dice.randrange(256) for _ in range(dice.randint(0, 9)))
        channel = channels["Management" in method]
        try:
            channel.unary_unary(method)(bytes(data), timeout=20)
        except grpc.RpcError as e:
            assert e.code() is not grpc.StatusCode.DEADLINE_EXCEEDED, (method, bytes(data))
            assert "Traceback" not in (e.details() or "")
    for channel in channels:
        channel.close()
    assert served.ask("GET", "/ping").status == 200


def test_malformed_messages_are_refused(served: Client):
    channel = grpc.insecure_channel(f"127.0.0.1:{served.server._grpc.addresses[0].port}")
    call = channel.unary_unary(f"/{INFERENCE}.InferenceAPIsService/Predictions")
    for data in (b"\xff" * 9, b"\x0a\xff\xff\xff\xff\x0f", b"\x1a\x03abc"):
        with pytest.raises(grpc.RpcError):
            call(data)
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/no.such/Service")(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    channel.close()
    assert served.ask("GET", "/ping").status == 200
