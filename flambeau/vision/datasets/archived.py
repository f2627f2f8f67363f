"""Data sets that come as one archive of files, each with a known checksum."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from .utils import check_integrity, download_and_extract_archive
from .vision import VisionDataset


class ArchivedDataset(VisionDataset):
    """A subclass names the archive, the folder it unpacks to, and the files in it as [name, MD5]."""

    base_folder: str
    url: str
    filename: str
    tgz_md5: str
    train_list: ClassVar[Any]
    test_list: ClassVar[Any]

    def _path(self, name: str) -> str:
        return os.path.join(self.root, self.base_folder, name)

    def _check_integrity(self) -> bool:
        return all(check_integrity(self._path(name), md5) for name, md5 in [*self.train_list, *self.test_list])

    def download(self) -> None:
        if not self._check_integrity():
            download_and_extract_archive(self.url, self.root, filename=self.filename, md5=self.tgz_md5)
