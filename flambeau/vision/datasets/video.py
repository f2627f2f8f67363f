"""Data sets of videos, and the clips of equal length that they are divided into. Frames are decoded by PyAV (`pip install av`)."""

from __future__ import annotations

import bisect
import csv
import math
import os
import urllib.parse
import warnings
from fractions import Fraction
from glob import glob
from typing import Any, ClassVar

import numpy as np

from ...core.tensor import Tensor, from_array
from ...ops.creation.filled import empty
from ...ops.creation.ranges import arange
from .folder import find_classes, make_dataset
from .utils import check_integrity, download_and_extract_archive, download_url, optional_module, verify_str_arg
from .vision import Transform, VisionDataset


def _open_video(path: str) -> Any:
    return optional_module("av", "reading videos").open(path)


def _frames_and_rate(path: str) -> tuple[int, float]:
    """Return the number of frames of a video and their mean rate in Hz."""
    with _open_video(path) as container:
        stream = container.streams.video[0]
        return stream.frames or sum(1 for _ in container.decode(stream)), float(stream.average_rate)


def _read_frames(path: str, first: int, last: int) -> np.ndarray:
    """Return frames `first` to `last` of a video: (T, H, W, 3)."""
    with _open_video(path) as container:
        shown = []
        for number, frame in enumerate(container.decode(video=0)):
            if number >= first:
                shown.append(frame.to_ndarray(format="rgb24"))
            if number == last:
                break
    return np.stack(shown)


def _read_sound(path: str, start: float, stop: float) -> Tensor:
    """Return the sound (channels, samples) of a video between two times in seconds; (1, 0) if it has none."""
    with _open_video(path) as container:
        if not container.streams.audio:
            return empty(1, 0)
        resampler = optional_module("av", "reading videos").AudioResampler(format="fltp")
        frames = [part for frame in container.decode(audio=0) for part in resampler.resample(frame)]
        sound, rate = np.concatenate([frame.to_ndarray() for frame in frames], axis=1), Fraction(frames[0].sample_rate)
    return from_array(sound[:, round(start * rate) : round(stop * rate)].copy())


def unfold(tensor: Tensor, size: int, step: int, dilation: int = 1) -> Tensor:
    """Return windows (n, size) over a vector, `step` apart, of elements that are `dilation` apart."""
    if tensor.dim() != 1:
        raise ValueError(f"tensor should have 1 dimension instead of {tensor.dim()}")
    count = max((tensor.numel() - (dilation * (size - 1) + 1)) // step + 1, 0)
    return tensor.as_strided((count, size), (step * tensor.stride(0), dilation * tensor.stride(0)))


class VideoClips:
    """Videos as clips of `clip_length_in_frames` frames, which begin `frames_between_clips` apart, at `frame_rate` or the video's own."""

    def __init__(
        self, video_paths: list[str], clip_length_in_frames: int = 16, frames_between_clips: int = 1, frame_rate: float | None = None,
        _precomputed_metadata: dict[str, Any] | None = None, num_workers: int = 0, _video_width: int = 0, _video_height: int = 0,
        _video_min_dimension: int = 0, _video_max_dimension: int = 0, _audio_samples: int = 0, _audio_channels: int = 0,
        output_format: str = "THWC",
    ):  # fmt: skip
        self.num_workers, self.output_format = num_workers, output_format.upper()
        if self.output_format not in ("THWC", "TCHW"):
            raise ValueError(f"output_format should be either 'THWC' or 'TCHW', got {output_format}.")
        found = _precomputed_metadata or {"video_paths": video_paths, **self._measure(video_paths)}
        self.video_paths, self.video_pts, self.video_fps = (found[f"video_{part}"] for part in ("paths", "pts", "fps"))
        self.compute_clips(clip_length_in_frames, frames_between_clips, frame_rate)

    @staticmethod
    def _measure(paths: list[str]) -> dict[str, list[Any]]:
        found = [_frames_and_rate(path) for path in paths]
        return {"video_pts": [arange(count) for count, _ in found], "video_fps": [rate for _, rate in found]}

    @property
    def metadata(self) -> dict[str, Any]:
        """Paths, frames and rates of the videos; passed as `_precomputed_metadata`, they save another set from opening the files."""
        return {"video_paths": self.video_paths, "video_pts": self.video_pts, "video_fps": self.video_fps}

    def subset(self, indices: list[int]) -> VideoClips:
        """Return the clips of some of the videos."""
        chosen = {name: [values[i] for i in indices] for name, values in self.metadata.items()}
        return type(self)(
            chosen["video_paths"], self.num_frames, self.step, self.frame_rate, chosen, self.num_workers,
            output_format=self.output_format,
        )  # fmt: skip

    @staticmethod
    def compute_clips_for_video(
        video_pts: Tensor, num_frames: int, step: int, fps: float | None, frame_rate: float | None = None
    ) -> tuple[Tensor, Any]:
        """Return the frames of each clip, and their positions in the video at its own rate."""
        fps = 1.0 if fps is None else fps
        frame_rate = fps if frame_rate is None else frame_rate
        places = VideoClips._resample_video_idx(math.floor(len(video_pts) * frame_rate / fps), fps, frame_rate)
        clips = unfold(video_pts[places], num_frames, step)
        if not clips.numel():
            warnings.warn(
                "There aren't enough frames in the current video to get a clip for the given clip length and frames between clips."
                " The video (and potentially others) will be skipped.",
                stacklevel=2,
            )
        return clips, [places] * len(clips) if isinstance(places, slice) else unfold(places, num_frames, step)

    def compute_clips(self, num_frames: int, step: int, frame_rate: float | None = None) -> None:
        """Recompute the clips of all videos."""
        self.num_frames, self.step, self.frame_rate = num_frames, step, frame_rate
        cut = [
            self.compute_clips_for_video(pts, num_frames, step, fps, frame_rate)
            for pts, fps in zip(self.video_pts, self.video_fps)
        ]
        self.clips, self.resampling_idxs = [clips for clips, _ in cut], [places for _, places in cut]
        self.cumulative_sizes = np.cumsum([len(clips) for clips in self.clips]).tolist()

    def __len__(self) -> int:
        return self.num_clips()

    def num_videos(self) -> int:
        """Return the number of videos."""
        return len(self.video_paths)

    def num_clips(self) -> int:
        """Return the number of clips of all videos."""
        return self.cumulative_sizes[-1]

    def get_clip_location(self, idx: int) -> tuple[int, int]:
        """Return the video of a clip, and the clip's number in it."""
        video = bisect.bisect_right(self.cumulative_sizes, idx)
        return video, idx - (self.cumulative_sizes[video - 1] if video else 0)

    @staticmethod
    def _resample_video_idx(num_frames: int, original_fps: float, new_fps: float) -> Any:
        step = original_fps / new_fps
        return slice(None, None, int(step)) if float(step).is_integer() else (arange(num_frames) * step).floor().long()

    def get_clip(self, idx: int) -> tuple[Tensor, Tensor, dict[str, Any], int]:
        """Return frames, sound, the rates, and the index of the video."""
        if idx >= self.num_clips():
            raise IndexError(f"Index {idx} out of range ({self.num_clips()} number of clips)")
        number, clip = self.get_clip_location(idx)
        path, fps = self.video_paths[number], self.video_fps[number]
        first, last = int(self.clips[number][clip][0]), int(self.clips[number][clip][-1])
        video = from_array(_read_frames(path, first, last))
        video = video if self.output_format == "THWC" else video.permute(0, 3, 1, 2)
        if self.frame_rate is not None:
            places = self.resampling_idxs[number][clip]
            video = video[places if isinstance(places, slice) else places - places[0]]
        assert len(video) == self.num_frames, f"{video.shape} x {self.num_frames}"
        info = {"video_fps": fps if self.frame_rate is None else self.frame_rate}
        return video, _read_sound(path, first / fps, (last + 1) / fps), info, number


class _VideoFolders(VisionDataset):
    """Base of data sets of videos in a folder for each class; items are (frames, sound, class)."""

    classes: list[str]
    samples: list[tuple[str, int]]
    indices: Any  # of the chosen videos among all samples
    video_clips: VideoClips

    def __len__(self) -> int:
        return self.video_clips.num_clips()

    def __getitem__(self, idx: int) -> tuple[Any, Tensor, int]:
        video, audio, _, number = self.video_clips.get_clip(idx)
        label = self.samples[self.indices[number]][1]
        return (video if self.transform is None else self.transform(video)), audio, label


class _ActionFolders(_VideoFolders):
    """Base of data sets of videos of actions, with lists of files for three folds."""

    def __init__(
        self, root: Any, annotation_path: str, frames_per_clip: int, step_between_clips: int = 1, frame_rate: int | None = None,
        fold: int = 1, train: bool = True, transform: Transform = None, _precomputed_metadata: dict[str, Any] | None = None,
        num_workers: int = 1, _video_width: int = 0, _video_height: int = 0, _video_min_dimension: int = 0, _audio_samples: int = 0,
        output_format: str = "THWC",
    ):  # fmt: skip
        super().__init__(root)
        if fold not in (1, 2, 3):
            raise ValueError(f"fold should be between 1 and 3, got {fold}")
        self.fold, self.train, self.transform = fold, train, transform
        self.classes, numbers = find_classes(self.root)
        self.samples = make_dataset(self.root, numbers, ("avi",))
        paths = [path for path, _ in self.samples]
        self.full_video_clips = VideoClips(
            paths, frames_per_clip, step_between_clips, frame_rate, _precomputed_metadata, num_workers,
            output_format=output_format,
        )  # fmt: skip
        self.indices = self._select_fold(paths, annotation_path, fold, train)
        self.video_clips = self.full_video_clips.subset(self.indices)

    @property
    def metadata(self) -> dict[str, Any]:
        """`VideoClips.metadata` of all videos."""
        return self.full_video_clips.metadata

    def _select_fold(self, video_list: list[str], annotations: str, fold: int, train: bool) -> list[int]:
        raise NotImplementedError


class HMDB51(_ActionFolders):
    """Films and recordings of 51 actions; the lists mark videos for training with 1 and for tests with 2."""

    data_url = "https://serre-lab.clps.brown.edu/wp-content/uploads/2013/10/hmdb51_org.rar"
    splits: ClassVar[dict[str, str]] = {
        "url": "https://serre-lab.clps.brown.edu/wp-content/uploads/2013/10/test_train_splits.rar",
        "md5": "15e67781e70dcfbdce2d7dbb9b3344b5",
    }
    TRAIN_TAG = 1
    TEST_TAG = 2

    def _select_fold(self, video_list: list[str], annotations: str, fold: int, train: bool) -> list[int]:
        chosen, wanted = set(), self.TRAIN_TAG if train else self.TEST_TAG
        for path in glob(os.path.join(annotations, f"*test_split{fold}.txt")):
            with open(path) as file:
                chosen |= {name for name, tag in map(str.split, file) if int(tag) == wanted}
        return [i for i, path in enumerate(video_list) if os.path.basename(path) in chosen]


class UCF101(_ActionFolders):
    """Recordings of 101 actions."""

    def _select_fold(self, video_list: list[str], annotations: str, fold: int, train: bool) -> list[int]:
        with open(os.path.join(annotations, f"{'train' if train else 'test'}list{fold:02d}.txt")) as file:
            chosen = {os.path.join(self.root, *line.strip().split(" ")[0].split("/")) for line in file}
        return [i for i, path in enumerate(video_list) if path in chosen]


class Kinetics(_VideoFolders):
    """Recordings of 400, 600 or 700 actions from YouTube."""

    _SITE = "https://s3.amazonaws.com/kinetics/"
    _VERSIONS: ClassVar[dict[str, str]] = {"400": "400", "600": "600", "700": "700_2020"}

    def __init__(
        self, root: Any, frames_per_clip: int, num_classes: str = "400", split: str = "train", frame_rate: int | None = None,
        step_between_clips: int = 1, transform: Transform = None, extensions: tuple[str, ...] = ("avi", "mp4"),
        download: bool = False, num_download_workers: int = 1, num_workers: int = 1,
        _precomputed_metadata: dict[str, Any] | None = None, _video_width: int = 0, _video_height: int = 0,
        _video_min_dimension: int = 0, _audio_samples: int = 0, _audio_channels: int = 0, _legacy: bool = False,
        output_format: str = "TCHW",
    ):  # fmt: skip
        super().__init__(root)
        self.num_classes = verify_str_arg(num_classes, "num_classes", list(self._VERSIONS))
        self.extensions, self.num_download_workers, self._legacy = extensions, num_download_workers, _legacy
        self.transform = transform
        if _legacy and download:
            raise ValueError("Cannot download the videos using legacy_structure.")
        self.split = "unknown" if _legacy else verify_str_arg(split, "split", ["train", "val", "test"])
        self.split_folder = root if _legacy else os.path.join(root, split)
        if download:
            self._download_videos()
            self._make_ds_structure()
        self.classes, numbers = find_classes(self.split_folder)
        self.samples = make_dataset(self.split_folder, numbers, extensions)
        self.indices = range(len(self.samples))
        self.video_clips = VideoClips(
            [path for path, _ in self.samples], frames_per_clip, step_between_clips, frame_rate, _precomputed_metadata, num_workers,
            output_format="THWC" if _legacy else output_format,
        )  # fmt: skip

    @property
    def metadata(self) -> dict[str, Any]:
        """`VideoClips.metadata` of all videos."""
        return self.video_clips.metadata

    def _download_videos(self) -> None:
        if os.path.exists(self.split_folder):
            return
        version = self._VERSIONS[self.num_classes]
        name, lists = f"k{version}_{self.split}_path.txt", os.path.join(self.root, "files")
        if not check_integrity(os.path.join(lists, name)):
            download_url(f"{self._SITE}{version}/{self.split}/{name}", lists)
        with open(os.path.join(lists, name)) as file:
            for line in file.read().splitlines():
                url = urllib.parse.quote(line, safe="/,:")
                download_and_extract_archive(url, os.path.join(self.root, "tars"), self.split_folder)

    def _make_ds_structure(self) -> None:
        """Move each video into the folder of its class."""
        notes = os.path.join(self.root, "annotations")
        if not check_integrity(os.path.join(notes, f"{self.split}.csv")):
            download_url(f"{self._SITE}{self._VERSIONS[self.num_classes]}/annotations/{self.split}.csv", notes)
        with open(os.path.join(notes, f"{self.split}.csv")) as file:
            for row in csv.DictReader(file):
                name = f"{row['youtube_id']}_{int(row['time_start']):06}_{int(row['time_end']):06}.mp4"
                label = row["label"].replace(" ", "_").translate({ord(c): None for c in "'()"})
                os.makedirs(os.path.join(self.split_folder, label), exist_ok=True)
                if os.path.isfile(os.path.join(self.split_folder, name)):
                    os.replace(os.path.join(self.split_folder, name), os.path.join(self.split_folder, label, name))
