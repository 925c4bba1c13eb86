"""Images learnt from scratch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from torch import nn

from sottovoce.losses import cross_entropy
from sottovoce.privacy.errors import ConfigurationError
from sottovoce.tasks import data, models
from sottovoce.tasks.data import ImageData
from sottovoce.tasks.naming import require_choice
from sottovoce.tasks.settings.grids import IMAGES_FROM_SCRATCH
from sottovoce.tasks.settings.setting import Examples, Setting
from sottovoce.tasks.settings.slices import Imbalance, Slices, cut
from sottovoce.tasks.settings.tensors import first

PUBLIC_RECORDS = 2_000
VALIDATION_RECORDS = 2_000


def cifar_10(
    *,
    seed: int,
    limit: int | None,
    model: str = "resnet",
    width: int | None = None,
    blocks: int | None = None,
    imbalance: Imbalance = "slight",
    public_records: int = PUBLIC_RECORDS,
    validation_records: int = VALIDATION_RECORDS,
) -> Setting:
    """CIFAR-10 from scratch.

    ``width`` and ``blocks`` set the size of the residual network: 8 and 1 give 19,786 parameters, 16 and 1 77,706, 16
    and 2 174,698, 40 and 2 1,085,690, 120 and 2 9,746,650. ``model="nf-resnet-18"`` is the paper's, with 11,169,162
    parameters at its width of 64.

    Args:
        seed: of the slices.
        limit: at most so many private records.
        model: ``"resnet"`` or ``"nf-resnet-18"``, which has two blocks in each of four stages.
        width: channels of the first stage; 8, or 64 for ``"nf-resnet-18"``, by default.
        blocks: blocks in each of the three stages of ``"resnet"``, 1 by default.
        imbalance: how the sizes of the public classes differ.
        public_records: the size of the public part.
        validation_records: the size of the validation part.
    """
    require_choice("model", model, ("resnet", "nf-resnet-18"))
    if model == "nf-resnet-18" and blocks is not None:
        raise ConfigurationError(f"blocks={blocks!r}: nf-resnet-18 has two blocks in each stage; leave it out.")
    if model == "resnet":
        sizes = {"width": 8 if width is None else width, "blocks": 1 if blocks is None else blocks}
    else:
        sizes = {"width": 64 if width is None else width}
    return _setting(
        "cifar-10",
        title="CIFAR-10 from scratch, residual network without normalisation",
        paper="CIFAR-10 from scratch: the paper's own data and kind of shift; its network is NF-ResNet-18, of 11 "
        "million parameters, from a warm start on the public records",
        network=lambda shape, classes, seed: models.build(model, shape=shape, classes=classes, seed=seed, **sizes),
        steps=600,
        batch_size=64,
        seed=seed,
        limit=limit,
        imbalance=imbalance,
        public_records=public_records,
        validation_records=validation_records,
    )


def fashion_mnist(
    *,
    seed: int,
    limit: int | None,
    imbalance: Imbalance = "slight",
    public_records: int = PUBLIC_RECORDS,
    validation_records: int = VALIDATION_RECORDS,
) -> Setting:
    """Fashion-MNIST, a fast variant of CIFAR-10 from scratch."""
    return _setting(
        "fashion-mnist",
        title="Fashion-MNIST from scratch, small convolutional network",
        paper="stand-in for CIFAR-10 from scratch: a fast variant",
        network=_small_cnn,
        steps=600,
        batch_size=256,
        seed=seed,
        limit=limit,
        imbalance=imbalance,
        public_records=public_records,
        validation_records=validation_records,
    )


def mnist(
    *,
    seed: int,
    limit: int | None,
    imbalance: Imbalance = "slight",
    public_records: int = PUBLIC_RECORDS,
    validation_records: int = VALIDATION_RECORDS,
) -> Setting:
    """MNIST, for quick runs."""
    return _setting(
        "mnist",
        title="MNIST from scratch, small convolutional network",
        paper="not in the paper: for quick runs",
        network=_small_cnn,
        steps=300,
        batch_size=256,
        seed=seed,
        limit=limit,
        imbalance=imbalance,
        public_records=public_records,
        validation_records=validation_records,
    )


def slices_of(
    images: ImageData,
    *,
    seed: int,
    limit: int | None,
    imbalance: Imbalance,
    public_records: int,
    validation_records: int,
) -> Slices:
    """The slices of a training part of images; they depend on the name of the data set and on ``seed``."""
    return cut(
        images.train_labels,
        name=f"{images.spec.name}-slices-{seed}",
        classes=images.classes,
        public=public_records,
        validation=validation_records,
        imbalance=imbalance,
        limit=limit,
    )


def rows(images: ImageData, numbers: list[int]) -> Examples:
    """Some records of the training part, scaled by the published constants."""
    chosen = np.asarray(numbers)
    part = replace(images, train_images=images.train_images[chosen], train_labels=images.train_labels[chosen])
    return part.as_tensors("train")


def _small_cnn(shape: models.Shape, classes: int, seed: int) -> nn.Module:
    return models.build("small-cnn", shape=shape, classes=classes, seed=seed, width=8, hidden=32)


def _setting(
    name: str,
    *,
    title: str,
    paper: str,
    network: Callable[[models.Shape, int, int], nn.Module],
    steps: int,
    batch_size: int,
    **slicing: Any,
) -> Setting:
    spec = data.spec(name)
    network(cast(models.Shape, spec.shape), len(spec.classes), 0)  # wrong options are told before data is read
    images = data.load_images(name)
    slices = slices_of(images, **slicing)
    public = rows(images, slices.public)
    return Setting(
        name=name,
        title=title,
        paper=paper,
        private=rows(images, slices.private),
        public=public,
        validation=rows(images, slices.validation),
        test=images.as_tensors("test"),
        make_model=lambda seed: network(images.shape, images.classes, seed),
        loss=cross_entropy,
        example=first(public),
        steps=steps,
        batch_size=batch_size,
        grids=IMAGES_FROM_SCRATCH,
    )
