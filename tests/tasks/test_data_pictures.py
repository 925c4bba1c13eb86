"""Images that are published as picture files: CIFAR-10 from its package, and Tiny-ImageNet from a folder."""

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_fakes import TEST, TRAIN, FakeTool, make_package, synthetic
from PIL import Image

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data
from sottovoce.tasks.data.formats.pictures import decode

COLOUR = (3, 32, 32)
IDENTIFIERS = [f"n{number:08}" for number in (5, 3, 9, 1, 7, 2, 8, 4, 6, 10)]


def picture(pixels: np.ndarray, form: str = "PNG", **options: Any) -> bytes:
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, form, **options)
    return made.getvalue()


def cifar_package() -> dict[str, bytes]:
    """Five pictures of ten images each, and one of twenty: an image is one line of 1,024 pixels."""
    arrays = synthetic(COLOUR)

    def lines(images: np.ndarray) -> bytes:
        return picture(images.transpose(0, 2, 3, 1).reshape(len(images), 1024, 3))

    size = TRAIN // 5
    contents = {f"train-{k + 1}": lines(arrays.train_images[k * size : (k + 1) * size]) for k in range(5)}
    labels = {"train-labels": arrays.train_labels, "test-labels": arrays.test_labels}
    texts = {role: json.dumps(values.tolist()).encode() for role, values in labels.items()}
    return {**contents, "test-1": lines(arrays.test_images), **texts}


def get_cifar(monkeypatch: pytest.MonkeyPatch, **changed: bytes) -> data.ImageData:
    contents = {**cifar_package(), **{role.replace("_", "-"): content for role, content in changed.items()}}
    data.get("cifar-10", runner=FakeTool("cifar-10", make_package(monkeypatch, "cifar-10", contents)))
    return data.load("cifar-10")


def test_cifar_pictures_are_the_images_in_their_order(monkeypatch: pytest.MonkeyPatch):
    loaded, wanted = get_cifar(monkeypatch), synthetic(COLOUR)
    assert np.array_equal(loaded.train_images, wanted.train_images)
    assert np.array_equal(loaded.train_labels, wanted.train_labels)
    assert np.array_equal(loaded.test_images, wanted.test_images)
    assert np.array_equal(loaded.test_labels, wanted.test_labels)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train_3": picture(np.zeros((9, 1024, 3), np.uint8))}, r"\(1024, 9\) pixels, where \(1024, 10\) is needed"),
        ({"train_3": picture(np.zeros((10, 1024, 3), np.uint8), "BMP")}, "cannot be read as PNG"),
        ({"train_3": b""}, "cannot be read as PNG"),
        ({"train_3": cifar_package()["train-3"][:-3000]}, "data_batch_3.png: it cannot be read as PNG"),
        ({"train_labels": b"[1, 2"}, "it is no JSON"),
        ({"train_labels": b"{}"}, "it is no list of small whole numbers"),
        ({"train_labels": b'[1, "2"]'}, "it is no list of small whole numbers"),
        ({"train_labels": b"[1, 2]"}, r"labels of shape \(2,\), where \(50,\) is needed"),
    ],
)
def test_other_pictures_and_labels_are_refused(
    changed: dict[str, bytes], message: str, monkeypatch: pytest.MonkeyPatch, cache_folder: Path
):
    with pytest.raises(DataError, match=message):
        get_cifar(monkeypatch, **changed)
    assert not cache_folder.exists()


@pytest.mark.parametrize(("side", "message"), [(8_000, "8000, 8000"), (1 << 30, "cannot be read as PNG")])
def test_a_picture_that_announces_a_huge_size_is_not_decoded(side: int, message: str):
    small = picture(np.zeros((4, 4, 3), np.uint8))
    at = small.index(b"IHDR")
    header = b"IHDR" + side.to_bytes(4, "big") * 2 + small[at + 12 : at + 17]
    huge = small[:at] + header + zlib.crc32(header).to_bytes(4, "big") + small[at + 21 :]
    with pytest.raises(DataError, match=message):
        decode(io.BytesIO(huge), "PNG", (4, 4), "here")


def write_tiny(folder: Path) -> dict[str, np.ndarray]:
    """The original layout with ten classes; the pictures as Pillow reads them, by file name."""
    generator, read = np.random.default_rng(3), dict[str, np.ndarray]()

    def write(file: Path, *, grey: bool) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, size=(64, 64) if grey else (64, 64, 3), dtype=np.uint8)
        file.write_bytes(picture(pixels, "JPEG"))
        read[file.name] = np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1)

    for identifier in IDENTIFIERS:
        for number in range(TRAIN // 10):
            write(folder / "train" / identifier / "images" / f"{identifier}_{number}.JPEG", grey=number == 1)
        (folder / "train" / identifier / f"{identifier}_boxes.txt").write_text("ignored")
    lines = []
    for number in range(TEST):
        write(folder / "val" / "images" / f"val_{number}.JPEG", grey=False)
        lines.append(f"val_{number}.JPEG\t{IDENTIFIERS[number % 10]}\t0\t32\t44\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return read


@pytest.mark.parametrize("inside", [".", "tiny-imagenet-200"])
def test_tiny_imagenet_from_its_original_folders(inside: str, tmp_path: Path):
    read = write_tiny(tmp_path / inside)
    data.get("tiny-imagenet", tmp_path)
    loaded = data.load("tiny-imagenet")
    in_order = sorted(IDENTIFIERS)
    assert loaded.shape == (3, 64, 64)
    assert loaded.train_labels.tolist() == [number // 5 for number in range(TRAIN)]
    for number, image in enumerate(loaded.train_images):
        assert np.array_equal(image, read[f"{in_order[number // 5]}_{number % 5}.JPEG"])
    assert loaded.test_labels.tolist() == [in_order.index(IDENTIFIERS[number % 10]) for number in range(TEST)]
    for number, image in enumerate(loaded.test_images):
        assert np.array_equal(image, read[f"val_{number}.JPEG"])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (f"train/{IDENTIFIERS[0]}/images/{IDENTIFIERS[0]}_0.JPEG", None, r"\(49, 3, 64, 64\), where \(50, 3, 64, 64\)"),
        (f"train/{IDENTIFIERS[0]}/images/{IDENTIFIERS[0]}_0.JPEG", b"x", "cannot be read as JPEG"),
        ("train/n99999999/images/x.JPEG", b"x", "11 classes, where 10 are needed"),
        ("val/images/val_3.JPEG", None, "whose picture or class is not there"),
        ("val/val_annotations.txt", None, "val/val_annotations.txt is missing"),
        ("val/val_annotations.txt", b"val_1.JPEG\tn00000099\n", "whose picture or class is not there"),
        ("val/val_annotations.txt", b"\n", "whose picture or class is not there"),
    ],
)
def test_a_tiny_imagenet_that_is_not_whole_is_refused(
    file: str, content: bytes | None, message: str, tmp_path: Path, cache_folder: Path
):
    own = tmp_path / "own"
    write_tiny(own)
    place = own / file
    if content is None:
        place.unlink()
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    with pytest.raises(DataError, match=message):
        data.get("tiny-imagenet", own)
    assert not cache_folder.exists()
