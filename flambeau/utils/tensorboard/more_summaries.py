"""Further TensorBoard summaries: sounds, videos, precision-recall curves, meshes, hyperparameters, layouts."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2
from tensorboard.plugins.mesh import metadata as mesh_metadata
from tensorboard.plugins.mesh.plugin_data_pb2 import MeshPluginData
from tensorboard.plugins.pr_curve.plugin_data_pb2 import PrCurvePluginData

from ...core.tensor import Tensor
from .summaries import as_numpy, height_width_channels


def _with_plugin(tag: str, plugin: str, content: bytes = b"", tensor: TensorProto | None = None) -> Summary.Value:
    found = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content))
    return Summary.Value(tag=tag, metadata=found, tensor=tensor)


def _shape(sizes: Iterable[int]) -> TensorShapeProto:
    return TensorShapeProto(dim=[TensorShapeProto.Dim(size=size) for size in sizes])


def histogram_raw(
    tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, limits: Any, counts: Any
) -> Summary:
    """Make a summary of a histogram that has been counted already."""
    proto = HistogramProto(
        min=min, max=max, num=num, sum=sum, sum_squares=sum_squares, bucket_limit=list(limits), bucket=list(counts)
    )
    return Summary(value=[Summary.Value(tag=tag, histo=proto)])


def tensor(tag: str, values: Any) -> Summary:
    """Make a summary with the values of a tensor."""
    held = as_numpy(values)
    kinds = {
        "float32": ("DT_FLOAT", "float_val"), "float64": ("DT_DOUBLE", "double_val"), "float16": ("DT_HALF", "half_val"),
        "int64": ("DT_INT64", "int64_val"), "int32": ("DT_INT32", "int_val"), "int16": ("DT_INT16", "int_val"),
        "int8": ("DT_INT8", "int_val"), "uint8": ("DT_UINT8", "int_val"), "bool": ("DT_BOOL", "bool_val"),
        "complex64": ("DT_COMPLEX64", "scomplex_val"), "complex128": ("DT_COMPLEX128", "dcomplex_val"),
    }  # fmt: skip
    if held.dtype.name not in kinds:
        raise ValueError(f"{tag} has unsupported tensor dtype {held.dtype}")
    name, field = kinds[held.dtype.name]
    flat = held.reshape(-1)
    if held.dtype.kind == "c":
        flat = np.stack([flat.real, flat.imag], axis=-1).reshape(-1)
    elif name == "DT_HALF":
        flat = flat.view(np.uint16)
    proto = TensorProto(dtype=name, tensor_shape=_shape(held.shape), **{field: flat.tolist()})
    plugin = SummaryMetadata.PluginData(plugin_name="tensor")
    return Summary(value=[Summary.Value(tag=tag, metadata=SummaryMetadata(plugin_data=plugin), tensor=proto)])


def sound(tag: str, samples: Any, rate: int) -> Summary:
    """Make a summary of one channel of sound, numbers from -1 to 1."""
    values = as_numpy(samples).squeeze()
    if values.ndim != 1:
        raise AssertionError("input tensor should be 1 dimensional.")
    if abs(values).max() > 1:
        print("warning: audio amplitude out of range, auto clipped.")
        values = values.clip(-1, 1)
    levels = (values * np.iinfo(np.int16).max).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(levels.tobytes())
    encoded = Summary.Audio(
        sample_rate=rate, num_channels=1, length_frames=len(levels), encoded_audio_string=buffer.getvalue(), content_type="audio/wav"
    )  # fmt: skip
    return Summary(value=[Summary.Value(tag=tag, audio=encoded)])


def film(tag: str, frames: Any, fps: float) -> Summary:
    """Make a summary of videos (batch, time, channels, height, width) side by side, as an animated GIF."""
    values = as_numpy(frames)
    if values.ndim != 5:
        raise ValueError(f"add_video expects (N, T, C, H, W), but got {values.ndim} dimensions")
    levels = (values.astype(np.float32) * (1 if values.dtype == np.uint8 else 255)).clip(0, 255).astype(np.uint8)
    count, time, channels, height, width = levels.shape
    rows = 1 << (count.bit_length() - 1 if count & (count - 1) == 0 else count.bit_length()) // 2
    columns = -(-count // rows)
    padded = np.concatenate([levels, np.zeros((rows * columns - count, *levels.shape[1:]), np.uint8)])
    laid = padded.reshape(rows, columns, time, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    pictures = [
        Image.fromarray(f if channels > 1 else f[..., 0])
        for f in laid.reshape(time, rows * height, columns * width, channels)
    ]
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / fps), loop=0)
    encoded = Summary.Image(
        height=rows * height, width=columns * width, colorspace=channels, encoded_image_string=buffer.getvalue()
    )
    return Summary(value=[Summary.Value(tag=tag, image=encoded)])


def picture_with_boxes(
    tag: str, image: Any, boxes: Any, rescale: float, dataformats: str, labels: list[str] | None
) -> Summary:
    """Make a summary of an image with rectangles (left, top, right, bottom) and their names drawn on it."""
    pixels = height_width_channels(as_numpy(image), dataformats)
    levels = (pixels.astype(np.float32) * (1 if pixels.dtype == np.uint8 else 255)).clip(0, 255).astype(np.uint8)
    drawn = Image.fromarray(levels)
    pen = ImageDraw.Draw(drawn)
    for i, (left, top, right, bottom) in enumerate(as_numpy(boxes).tolist()):
        pen.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], width=2, fill="Red")
        if labels is not None:
            pen.text((left + 2, bottom - 12), labels[i], fill="Red")
    height, width, channels = levels.shape
    drawn = drawn.resize((int(width * rescale), int(height * rescale)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    drawn.save(buffer, format="PNG")
    encoded = Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=buffer.getvalue())
    return Summary(value=[Summary.Value(tag=tag, image=encoded)])


# -- precision and recall -------------------------------------------------------------------------------------------------
def precision_recall(labels: Any, predictions: Any, count: int, weights: Any = None) -> np.ndarray:
    """Return six rows of `count` numbers, by threshold: true and false positives, true and false negatives, precision, recall."""
    truth, given = as_numpy(labels).astype(np.float64), as_numpy(predictions)
    share = 1.0 if weights is None else as_numpy(weights)
    places = np.int32(np.floor(given * (count - 1)))

    def at_least(what: Any) -> np.ndarray:
        """Return the weight of the predictions above each threshold."""
        found, _ = np.histogram(places, bins=count, range=(0, count - 1), weights=what)
        return np.cumsum(found[::-1])[::-1]

    hits, false = at_least(truth * share), at_least((1.0 - truth) * share)
    missed, right = hits[0] - hits, false[0] - false
    precision = hits / np.maximum(1e-7, hits + false)
    recall = hits / np.maximum(1e-7, hits + missed)
    return np.stack([hits, false, right, missed, precision, recall])


def precision_curve(tag: str, rows: np.ndarray, count: int) -> Summary:
    """Make a summary of a precision-recall curve."""
    content = PrCurvePluginData(version=0, num_thresholds=min(count, 127)).SerializeToString()
    proto = TensorProto(dtype="DT_FLOAT", float_val=rows.reshape(-1).tolist(), tensor_shape=_shape(rows.shape))
    return Summary(value=[_with_plugin(tag, "pr_curves", content, proto)])


# -- meshes, layouts, hyperparameters ---------------------------------------------------------------------------------------
def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: dict | None) -> Summary:
    """Make a summary of points in space, and the triangles between them."""
    kinds = MeshPluginData.VERTEX, MeshPluginData.FACE, MeshPluginData.COLOR
    given = [(value, kind) for value, kind in zip((vertices, faces, colors), kinds) if value is not None]
    parts = mesh_metadata.get_components_bitmask([kind for _, kind in given])
    written = []
    for value, kind in given:
        held = as_numpy(value)
        proto = TensorProto(dtype="DT_FLOAT", float_val=held.reshape(-1).tolist(), tensor_shape=_shape(held.shape))
        about = mesh_metadata.create_summary_metadata(
            tag, None, kind, parts, held.shape, None, json_config=json.dumps(config or {}, sort_keys=True)
        )
        name = mesh_metadata.get_instance_name(tag, kind)
        written.append(Summary.Value(tag=name, tensor=proto, metadata=about))
    return Summary(value=written)


def chart_layout(layout: Mapping[str, Mapping[str, Any]]) -> Summary:
    """Make a summary of the curves that belong in one diagram: {category: {title: ["Multiline" or "Margin", [names of curves]]}}."""
    categories = []
    for title, charts in layout.items():
        made = []
        for name, (kind, tags) in charts.items():
            if kind == "Margin":
                if len(tags) != 3:
                    raise AssertionError("len(tags) != 3")
                series = layout_pb2.MarginChartContent.Series(value=tags[0], lower=tags[1], upper=tags[2])
                made.append(layout_pb2.Chart(title=name, margin=layout_pb2.MarginChartContent(series=[series])))
            else:
                made.append(layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=tags)))
        categories.append(layout_pb2.Category(title=title, chart=made))
    text = layout_pb2.Layout(category=categories).SerializeToString()
    proto = TensorProto(dtype="DT_STRING", string_val=[text], tensor_shape=TensorShapeProto())
    return Summary(value=[_with_plugin("custom_scalars__config__", "custom_scalars", b"", proto)])


def _number_kind(value: Any) -> tuple[str, str]:
    """Return the field and the type that a hyperparameter is written as; like in PyTorch, bools are numbers."""
    if isinstance(value, (int, float, Tensor)):
        return "number_value", "DATA_TYPE_FLOAT64"
    if isinstance(value, str):
        return "string_value", "DATA_TYPE_STRING"
    raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")


def hyperparameters(values: dict, metrics: dict, choices: dict | None) -> list[Summary]:
    """Make summaries of the settings of a run, and of the metrics it is judged by."""
    choices = choices or {}
    if not isinstance(choices, dict):
        raise TypeError("parameter: hparam_domain_discrete should be a dictionary, nothing logged.")
    for name, possible in choices.items():
        same = (
            isinstance(possible, list) and name in values and all(isinstance(v, type(values[name])) for v in possible)
        )
        if not same:
            raise TypeError(
                f"parameter: hparam_domain_discrete[{name}] should be a list of same type as hparam_dict[{name}]."
            )
    start, described = plugin_data_pb2.SessionStartInfo(), []
    for name, value in values.items():
        if value is None:
            continue
        field, kind = _number_kind(value)
        setattr(
            start.hparams[name], field, float(as_numpy(value).reshape(-1)[0]) if isinstance(value, Tensor) else value
        )
        info = api_pb2.HParamInfo(name=name, type=api_pb2.DataType.Value(kind))
        for possible in choices.get(name, ()):
            setattr(info.domain_discrete.values.add(), field, possible)
        described.append(info)
    measured = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metrics]
    experiment = api_pb2.Experiment(hparam_infos=described, metric_infos=measured)
    end = plugin_data_pb2.SessionEndInfo(status=api_pb2.Status.Value("STATUS_SUCCESS"))
    parts = [
        (metadata.EXPERIMENT_TAG, {"experiment": experiment}),
        (metadata.SESSION_START_INFO_TAG, {"session_start_info": start}),
        (metadata.SESSION_END_INFO_TAG, {"session_end_info": end}),
    ]
    written = []
    for tag, content in parts:
        data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content).SerializeToString()
        written.append(Summary(value=[_with_plugin(tag, metadata.PLUGIN_NAME, data)]))
    return written


def hparams(hparam_dict: dict, metric_dict: dict, hparam_domain_discrete: dict | None = None) -> tuple[Summary, ...]:
    """Make three summaries of the settings of a run: the experiment, its start and its end."""
    return tuple(hyperparameters(hparam_dict, metric_dict, hparam_domain_discrete))
