"""What is known of a data set before any of it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sottovoce.tasks.data.sources import Source

Kind = Literal["images", "texts", "weights"]
FolderFormat = Literal["idx", "cifar-10", "tiny-imagenet", "imdb", "snli", "mnli", "polarity"]


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The numbers of records of each class, in the order of the classes; an empty ``test`` is no test part."""

    train: tuple[int, ...]
    test: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """A classification data set of images or of texts, or the weights of a pretrained model: the public facts.

    ``mean`` and ``std`` (per channel, of pixels in [0, 1]) are constants published long ago with the data set;
    they are written here as text and are never computed from the records at hand.

    Attributes:
        kind: images, texts or weights; ``shape``, ``mean`` and ``std`` are empty unless it is images, ``fields`` (the
            names of a record's strings) unless it is texts, ``classes`` and ``counts`` for weights.
        counts: the records of each class in the archive of ``package``.
        folder_counts: the same in the original files, where these hold other records than the archive.
        package: the pinned archive; without one, only ``--from FOLDER`` remains.
        folder_format: the form of the original files that ``--from FOLDER`` reads, if there is one.
        folder_note: what FOLDER has to hold, for people.
        note: what whoever uses the records should know about them.
    """

    name: str
    title: str
    kind: Kind
    terms: str
    source: str
    package: Source | None = None
    classes: tuple[str, ...] = ()
    counts: Counts = Counts(train=())
    folder_counts: Counts | None = None
    folder_format: FolderFormat | None = None
    folder_note: str = ""
    shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    fields: tuple[str, ...] = ()
    note: str = ""

    @property
    def train_records(self) -> int:
        """The number of training records that :func:`~sottovoce.tasks.data.get` obtains without a folder."""
        return sum(self.counts.train)

    @property
    def test_records(self) -> int:
        """The number of test records, 0 where there is no test part."""
        return sum(self.counts.test)

    @property
    def command(self) -> str:
        """The one command that puts this data set into the cache."""
        command = f"sottovoce data get {self.name}"
        return command if self.package is not None else f"{command} --from FOLDER"

    @property
    def folder_needs(self) -> str:
        """What a folder given with ``--from`` has to hold."""
        archive = f"the archive {self.package.archive}" if self.package is not None else ""
        return ", or ".join(filter(None, (self.folder_note, archive)))

    def counts_of(self, origin: str) -> Counts:
        """The records to expect of what came from ``origin``: ``"folder"``, or a registry."""
        return self.folder_counts if origin == "folder" and self.folder_counts is not None else self.counts
