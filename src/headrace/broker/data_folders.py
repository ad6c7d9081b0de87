"""The data folders of a broker (``log.dirs``), and the ids that their ``meta.properties`` files name."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.log.disk import Disk
from headrace.log.meta_properties import known_owner


class DataFolders:
    def __init__(self, folders: Iterable[str], disk: Disk) -> None:
        self.disk = disk
        self.paths = [Path(folder).absolute() for folder in folders]
        #: The owner of the folders: a broker of a cluster. Both are None if all folders are new.
        self.stored_broker_id, self.stored_cluster_id = known_owner(disk, map(str, self.paths))

    @property
    def first(self) -> Path:
        return self.paths[0]
