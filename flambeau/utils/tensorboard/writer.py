"""`SummaryWriter`: a folder of event files that TensorBoard reads while they grow."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import summaries


class SummaryWriter:
    """Writes scalars, histograms, pictures and text to `log_dir`.

    >>> with SummaryWriter("runs/first") as writer:
    ...     writer.add_scalar("loss", 0.5, global_step=1)
    """

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            moment = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{moment}_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self._writers: dict[str, EventFileWriter] = {}
        if purge_step is not None:
            self._write_event(Event(file_version="brain.Event:2"), purge_step, None)
            self._write_event(Event(session_log=SessionLog(status=SessionLog.START)), purge_step, None)
        self._writer(self.log_dir)

    def _writer(self, folder: str) -> EventFileWriter:
        if folder not in self._writers:
            self._writers[folder] = EventFileWriter(folder, *self._options)
        return self._writers[folder]

    def _write_event(self, event: Event, step: Any, walltime: float | None, folder: str | None = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self._writer(folder or self.log_dir).add_event(event)

    def _write(self, summary: Summary, step: Any, walltime: float | None, folder: str | None = None) -> None:
        self._write_event(Event(summary=summary), step, walltime, folder)

    def get_logdir(self) -> str:
        """The folder that is written to."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One point of a curve."""
        self._write(summaries.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """One point of each of several curves in one diagram; each has a folder of its own."""
        moment = time.time() if walltime is None else walltime
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            self._write(summaries.scalar(main_tag, value), global_step, moment, folder)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How the values are distributed."""
        self._write(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """A picture: bytes, or floats from 0 to 1."""
        self._write(summaries.picture(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """A batch of pictures, side by side."""
        self._write(summaries.picture(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A figure of Matplotlib, or several, as pictures."""
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
        """Text, shown as Markdown."""
        self._write(summaries.text(tag, text_string), global_step, walltime)

    def flush(self) -> None:
        """Write what is still in memory."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write what is still in memory, and end; what is added later starts a new file."""
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
