"""Data sets of images as NumPy arrays and as tensors ready for training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks.data.arrays import Labels, Pixels
from sottovoce.tasks.data.specs import DatasetSpec

if TYPE_CHECKING:
    import torch

Split = Literal["train", "test"]


@dataclass(frozen=True)
class ImageData:
    """A data set in memory: images ``[records, channels, height, width]`` in 0..255, and their labels."""

    spec: DatasetSpec
    train_images: Pixels = field(repr=False)
    train_labels: Labels = field(repr=False)
    test_images: Pixels = field(repr=False)
    test_labels: Labels = field(repr=False)
    provenance: dict[str, Any] = field(repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = self.spec.shape
        return channels, height, width

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.spec.classes)

    def as_tensors(
        self, split: Split, *, limit: int | None = None, normalise: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Images as float32 and labels as int64, in the stored order.

        Args:
            split: ``"train"`` or ``"test"``.
            limit: take the first so many records only.
            normalise: shift and scale each channel, after the scaling to [0, 1], by the constants published with
                the data set. They are public and fixed; nothing is computed from the records.
        """
        import torch

        if split not in ("train", "test"):
            raise ConfigurationError(f"split={split!r}: it must be 'train' or 'test'.")
        images = self.train_images if split == "train" else self.test_images
        labels = self.train_labels if split == "train" else self.test_labels
        if limit is not None and not 1 <= limit <= len(labels):
            raise ConfigurationError(
                f"limit={limit!r}: the {split} part of {self.spec.name} has {len(labels)} records."
            )
        pixels = torch.from_numpy(images[:limit]).to(torch.float32).div_(255)
        if normalise:
            channels = (1, -1, 1, 1)
            pixels.sub_(torch.tensor(self.spec.mean).reshape(channels))
            pixels.div_(torch.tensor(self.spec.std).reshape(channels))
        return pixels, torch.from_numpy(labels[:limit].copy())
