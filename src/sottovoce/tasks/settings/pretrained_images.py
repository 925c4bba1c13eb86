"""Images by a network that ImageNet has trained: a head on its frozen features, or the whole network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sottovoce.losses import cross_entropy
from sottovoce.tasks import data, efficientnet
from sottovoce.tasks.data.arrays import Pixels
from sottovoce.tasks.features import cached
from sottovoce.tasks.heads import Standardised, head, stacked
from sottovoce.tasks.naming import require_counts
from sottovoce.tasks.settings.grids import FEATURES, WHOLE_NETWORK
from sottovoce.tasks.settings.images import PUBLIC_RECORDS, VALIDATION_RECORDS, slices_of
from sottovoce.tasks.settings.setting import Examples, Setting
from sottovoce.tasks.settings.slices import Imbalance
from sottovoce.tasks.settings.tensors import first, labels, pixels

_AT_ONCE = 16
"""Images that are computed together; more no longer fit into a core's cache and are slower."""

_ROOT = "efficientnet-lite0"


def cifar_10_pretrained(
    *,
    seed: int,
    limit: int | None,
    features: bool = True,
    size: int = 96,
    hidden: int = 0,
    imbalance: Imbalance = "slight",
    public_records: int = PUBLIC_RECORDS,
    validation_records: int = VALIDATION_RECORDS,
) -> Setting:
    """CIFAR-10 by an EfficientNet-Lite0 of ImageNet.

    Args:
        seed: of the slices.
        limit: at most so many private records.
        features: train a head on features that are computed once, some minutes, and cached; or the whole network.
        size: the pixels that images are enlarged to.
        hidden: hidden units of the head; 0 for a linear one, of 12,810 parameters.
        imbalance: how the sizes of the public classes differ.
        public_records: the size of the public part.
        validation_records: the size of the validation part.
    """
    return _setting(
        "cifar-10",
        name="cifar-10-pretrained",
        title="CIFAR-10, EfficientNet-Lite0 pretrained on ImageNet",
        paper="stand-in for Tiny-ImageNet with a ViT pretrained on Places365: neither the data nor such weights can be "
        "had from a package registry. Upsampled CIFAR-10 and a convolutional network pretrained on ImageNet, of whose "
        "classes CIFAR-10's are relatives",
        seed=seed,
        limit=limit,
        features=features,
        size=size,
        hidden=hidden,
        imbalance=imbalance,
        public_records=public_records,
        validation_records=validation_records,
    )


def tiny_imagenet(
    *,
    seed: int,
    limit: int | None,
    features: bool = True,
    size: int = 96,
    hidden: int = 0,
    imbalance: Imbalance = "none",
    public_records: int = 4_000,
    validation_records: int = VALIDATION_RECORDS,
) -> Setting:
    """Tiny-ImageNet, where a user has it, by the network of ``cifar-10-pretrained``; 20 public images of each class."""
    return _setting(
        "tiny-imagenet",
        name="tiny-imagenet",
        title="Tiny-ImageNet, EfficientNet-Lite0 pretrained on ImageNet",
        paper="Tiny-ImageNet: the paper's own data and 4 % public. Its network is a ViT pretrained on Places365; this "
        "one was trained on ImageNet, which holds these very images, so the guarantee covers the fine-tuning alone and "
        "accuracies are not comparable",
        seed=seed,
        limit=limit,
        features=features,
        size=size,
        hidden=hidden,
        imbalance=imbalance,
        public_records=public_records,
        validation_records=validation_records,
    )


def _setting(
    dataset: str,
    *,
    name: str,
    title: str,
    paper: str,
    seed: int,
    limit: int | None,
    features: bool,
    size: int,
    hidden: int,
    imbalance: Imbalance,
    public_records: int,
    validation_records: int,
) -> Setting:
    require_counts(size=size)
    head(inputs=efficientnet.WIDTH, classes=len(data.spec(dataset).classes), hidden=hidden)  # before data is read
    images = data.load_images(dataset)
    slices = slices_of(
        images,
        seed=seed,
        limit=limit,
        imbalance=imbalance,
        public_records=public_records,
        validation_records=validation_records,
    )
    weights = next(file for name, file in data.weights(_ROOT).items() if name.endswith(".pth"))

    def make_head(seed: int) -> nn.Module:
        return head(inputs=efficientnet.WIDTH, classes=images.classes, hidden=hidden, seed=seed)

    if features:
        train = _features(f"{dataset}-train", images.train_images, weights, size)
        scaling = Standardised(train[torch.tensor(slices.public)])
        test = scaling(_features(f"{dataset}-test", images.test_images, weights, size)), labels(images.test_labels)
    else:
        train = None
        public_images = images.train_images[np.asarray(slices.public)]
        scaling = Standardised(_features(f"{dataset}-public", public_images, weights, size))
        test = images.as_tensors("test", normalise=False)

    def rows(numbers: list[int]) -> Examples:
        chosen = np.asarray(numbers)
        if train is None:
            return pixels(images.train_images[chosen]), labels(images.train_labels[chosen])
        return scaling(train[torch.from_numpy(chosen)]), labels(images.train_labels[chosen])

    def make_model(seed: int) -> nn.Module:
        top = head(inputs=efficientnet.WIDTH, classes=images.classes, hidden=hidden, seed=seed)
        if features:
            return top
        return stacked(body=efficientnet.pretrained(weights, size=size), standardised=scaling, head=top)

    public = rows(slices.public)
    return Setting(
        name=name,
        title=title if features else f"{title}, the whole network",
        paper=paper,
        private=rows(slices.private),
        public=public,
        validation=rows(slices.validation),
        test=test,
        make_model=make_model,
        loss=cross_entropy,
        example=first(public),
        steps=600 if features else 40,
        batch_size=256 if features else 64,
        grids=FEATURES if features else WHOLE_NETWORK,
    )


def _features(name: str, images: Pixels, weights: Path, size: int) -> Tensor:
    """``[images, 1280]``, from the cache or by the network."""

    def compute() -> Tensor:
        network = efficientnet.pretrained(weights, size=size)
        network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        found = torch.empty(len(images), efficientnet.WIDTH)
        for start in range(0, len(images), _AT_ONCE):
            part = pixels(images[start : start + _AT_ONCE]).to(memory_format=torch.channels_last)
            found[start : start + _AT_ONCE] = network(part)
        return found

    ingredients = [weights.read_bytes(), np.ascontiguousarray(images).tobytes(), str(size).encode()]
    return cached(f"{name}-{_ROOT}-{size}px", ingredients, compute)
