"""`SummaryWriter`: a folder of event files that TensorBoard reads while they grow."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import _pytorch_graph, embedding, more_summaries, summaries


class FileWriter:
    """Writes events and summaries to one file of a folder, for `SummaryWriter`."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""):
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self) -> str:
        """Return the folder of the file."""
        return self.event_writer.get_logdir()

    def add_event(self, event: Event, step: int | None = None, walltime: float | None = None) -> None:
        """Write an event, with the time and the step number."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Summary, global_step: int | None = None, walltime: float | None = None) -> None:
        """Write a summary."""
        self.add_event(Event(summary=summary), global_step, walltime)

    def flush(self) -> None:
        """Write buffered data to the file."""
        self.event_writer.flush()

    def close(self) -> None:
        """Close the file."""
        self.event_writer.close()


class SummaryWriter:
    """Writes scalars, histograms, images and text to `log_dir`.

    >>> with SummaryWriter("runs/first") as writer:
    ...     writer.add_scalar("loss", 0.5, global_step=1)
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
        flush_secs: int = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        if not log_dir:
            moment = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{moment}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._projector = ProjectorConfig()
        self._writers: dict[str, FileWriter] = {}
        if purge_step is not None:
            self._write_event(Event(file_version="brain.Event:2"), purge_step, None)
            self._write_event(Event(session_log=SessionLog(status=SessionLog.START)), purge_step, None)
        self._writer(self.log_dir)

    def _writer(self, folder: str) -> FileWriter:
        if folder not in self._writers:
            self._writers[folder] = FileWriter(folder, *self._options)
        return self._writers[folder]

    def _get_file_writer(self) -> FileWriter:
        """Return the writer of the file in `log_dir`, through which loggers of other libraries add their own summaries."""
        return self._writer(self.log_dir)

    def _write_event(self, event: Event, step: Any, walltime: float | None, folder: str | None = None) -> None:
        self._writer(folder or self.log_dir).add_event(event, step, walltime)

    def _write(self, summary: Summary, step: Any, walltime: float | None, folder: str | None = None) -> None:
        self._write_event(Event(summary=summary), step, walltime, folder)

    def get_logdir(self) -> str:
        """Return the folder of the event files."""
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """Add a point to a curve."""
        self._write(summaries.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Add a point to each of several curves in one diagram; each has a separate folder."""
        moment = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._write(summaries.scalar(main_tag, value), global_step, moment, folder)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Add a histogram of the values."""
        self._write(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Add an image: bytes, or floats from 0 to 1."""
        self._write(summaries.picture(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Add a batch of images, side by side."""
        self._write(summaries.picture(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Add a figure of Matplotlib, or several, as images."""
        figures = figure if isinstance(figure, list) else [figure]
        drawn = np.stack([_pixels(f) for f in figures])
        if close:
            for f in figures:
                f.clear()
        if isinstance(figure, list):
            self.add_images(tag, drawn, global_step, walltime, dataformats="NHWC")
        else:
            self.add_image(tag, drawn[0], global_step, walltime, dataformats="HWC")

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a text, shown as Markdown."""
        self._write(summaries.text(tag, text_string), global_step, walltime)

    # -- other plugins of TensorBoard -----------------------------------------------------------------------------------
    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Add the graph of what a network computes for an example."""
        graph, stats = _pytorch_graph.graph(model, input_to_model, verbose, use_strict_trace)
        self._write_graph(graph)
        tagged = TaggedRunMetadata(tag="step1", run_metadata=stats.SerializeToString())
        self._write_event(Event(tagged_run_metadata=tagged), None, None)

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Add the graph of an ONNX file; needs the package `onnx`."""
        self._write_graph(_pytorch_graph.of_onnx(prototxt))

    def _write_graph(self, graph: GraphDef) -> None:
        self._write_event(Event(graph_def=graph.SerializeToString()), None, None)

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: int | None = None,
        tag: str = "default", metadata_header: Any = None,
    ) -> None:  # fmt: skip
        """Add points in many dimensions, with labels and images, for the projector."""
        folder, step = Path(self.log_dir), global_step or 0
        embedding.write(folder, self._projector, mat, metadata, label_img, step, tag, metadata_header)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: dict[str, list[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Add the settings of this run and its results, in a separate folder."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        written = more_summaries.hyperparameters(hparam_dict, metric_dict, hparam_domain_discrete)
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as writer:
            for summary in written:
                writer._write(summary, global_step, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127,
        weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a curve of precision and recall by threshold."""
        count = min(num_thresholds, 127)
        rows = more_summaries.precision_recall(labels, predictions, count, weights)
        self._write(more_summaries.precision_curve(tag, rows, count), global_step, walltime)

    def add_pr_curve_raw(
        self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any,
        false_negative_counts: Any, precision: Any, recall: Any, global_step: int | None = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a precision-recall curve that has been computed already."""
        parts = (
            true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall,
        )  # fmt: skip
        rows = np.stack([summaries.as_numpy(part) for part in parts])
        self._write(more_summaries.precision_curve(tag, rows, num_thresholds), global_step, walltime)

    def add_mesh(
        self, tag: str, vertices: Any, colors: Any = None, faces: Any = None, config_dict: dict | None = None,
        global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add points in space, their colours, and the triangles between them."""
        self._write(more_summaries.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """Add a sound: samples from -1 to 1."""
        self._write(more_summaries.sound(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4, walltime: float | None = None
    ) -> None:
        """Add videos (batch, time, channels, height, width), side by side."""
        self._write(more_summaries.film(tag, vid_tensor, fps), global_step, walltime)

    def add_image_with_boxes(
        self, tag: str, img_tensor: Any, box_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, rescale: float = 1, dataformats: str = "CHW", labels: Any = None,
    ) -> None:  # fmt: skip
        """Add an image with rectangles and their names drawn on it."""
        names = [labels] if isinstance(labels, str) else labels
        made = more_summaries.picture_with_boxes(tag, img_tensor, box_tensor, rescale, dataformats, names)
        self._write(made, global_step, walltime)

    def add_histogram_raw(
        self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Any,
        bucket_counts: Any, global_step: int | None = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a histogram that has been counted already."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        made = more_summaries.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._write(made, global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """Add the values of a tensor."""
        self._write(more_summaries.tensor(tag, tensor), global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Any]) -> None:
        """Add a layout: the curves that belong in one diagram."""
        self._write(more_summaries.chart_layout(layout), None, None)

    def add_custom_scalars_multilinechart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show several curves in one diagram."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: list[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """Show a curve with its lower and upper margin."""
        if len(tags) != 3:
            raise AssertionError(f"Expected 3 tags, got {len(tags)}.")
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def flush(self) -> None:
        """Write buffered data to the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write buffered data and close the files; values added later start a new file."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *problem: Any) -> None:
        self.close()


def _pixels(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3]
