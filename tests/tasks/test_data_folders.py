"""Data sets from a folder that the user has: IDX, and CIFAR-10 in both forms."""

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_fakes import TRAIN, python2_pickle, synthetic, write_cifar, write_idx

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data
from sottovoce.tasks.data.arrays import Arrays
from sottovoce.tasks.data.formats.pickled import PickledArray, load_plain

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
FORMS = ["binary", "python 2", "protocol 2", "protocol 3", "protocol 4"]


def assert_loads(name: str, wanted: Arrays) -> None:
    loaded = data.load(name)
    for part in ("train_images", "train_labels", "test_images", "test_labels"):
        assert np.array_equal(getattr(loaded, part), getattr(wanted, part)), part


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("joint", ["-", "."])
@pytest.mark.parametrize("compressed", [False, True])
def test_idx_files(name: str, joint: str, compressed: bool, tmp_path: Path):
    wanted = synthetic(GREY)
    write_idx(tmp_path / "own", wanted, joint=joint, compressed=compressed)
    data.get(name, tmp_path / "own")
    assert_loads(name, wanted)
    assert data.load(name).provenance["origin"] == {
        "kind": "folder",
        "folder": str(tmp_path / "own"),
        "format": "idx",
    }


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_cifar_batches(form: str, inside: str, tmp_path: Path):
    wanted = synthetic(COLOUR)
    write_cifar(tmp_path / "own" / inside, wanted, form)
    data.get("cifar-10", tmp_path / "own")
    assert_loads("cifar-10", wanted)


def test_the_hand_made_python_2_pickle_is_what_pickle_reads_as_such():
    """The stand-in for the originals is a valid batch for the standard unpickler with NumPy."""
    wanted = synthetic(COLOUR)
    images = wanted.test_images.reshape(len(wanted.test_images), -1)
    read = pickle.loads(python2_pickle(images, wanted.test_labels), encoding="bytes")
    assert np.array_equal(read[b"data"], images)
    assert read[b"labels"] == wanted.test_labels.tolist()


def test_an_array_stored_by_columns_is_read_as_one_by_rows(tmp_path: Path):
    wanted = synthetic(COLOUR)
    write_cifar(tmp_path, wanted, "protocol 2")
    columns = np.asfortranarray(wanted.test_images.reshape(len(wanted.test_images), -1))
    batch = {"data": columns, "labels": wanted.test_labels.tolist()}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    data.get("cifar-10", tmp_path)
    assert_loads("cifar-10", wanted)


class Evil:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [os.mkdir, eval, getattr, np.load])
def test_a_pickle_that_calls_anything_is_refused_and_nothing_is_called(protocol: int, function: Any, tmp_path: Path):
    trace = tmp_path / "trace"
    evil = Evil(function, f"__import__('os').mkdir({str(trace)!r})" if function is eval else str(trace))
    content = pickle.dumps({"data": evil, "labels": [evil]}, protocol=protocol)
    with pytest.raises(DataError, match="this pickle is refused"):
        load_plain(content, tmp_path / "data_batch_1")
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04\x8c\x05numpy\x8c\x10ndarray.tofile.x\x93.",  # a dotted name
        b"\x80\x02cnumpy\nndarray\n}\x8c\x01acbuiltins\neval\nsb.",
        b"\x80\x02cnumpy\nndarray\n}b.",  # a state for a class
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n}b.",
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R.",  # another class
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",  # a persistent identifier
        b"\x80\x02}",  # cut short
        b"",
        b"not a pickle",
    ],
)
def test_tricks_with_the_allowed_names_are_refused(content: bytes, tmp_path: Path):
    with pytest.raises(DataError, match="this pickle is refused"):
        load_plain(content, tmp_path / "data_batch_1")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3072), dtype=np.int16),
        np.zeros((2, 3072), dtype=object),
        np.zeros((2, 3071), dtype=np.uint8),
        np.zeros(6144, dtype=np.uint8),
    ],
)
def test_a_batch_with_another_array_is_refused(array: np.ndarray, tmp_path: Path):
    write_cifar(tmp_path, synthetic(COLOUR), "protocol 2")
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({"data": array, "labels": [0, 1]}, protocol=2))
    with pytest.raises(DataError, match="data_batch_3"):
        data.get("cifar-10", tmp_path)


def test_an_array_whose_shape_promises_more_than_its_bytes_is_refused(tmp_path: Path):
    array = PickledArray()
    state = pickle.loads(pickle.dumps(np.zeros((2, 2), dtype=np.uint8).__reduce__()[2]))
    dtype = load_plain(pickle.dumps(np.zeros(1, dtype=np.uint8), protocol=2), tmp_path)._state[2]
    array.__setstate__((1, (1 << 40, 1 << 40), dtype, False, state[4]))
    with pytest.raises(DataError, match="damaged"):
        array.as_bytes(tmp_path)


@pytest.mark.parametrize(
    "batch", [{"data": [1]}, {"labels": [1]}, [1], {"data": np.zeros((1, 3072), np.uint8), "labels": [1.5]}]
)
def test_a_batch_of_another_structure_is_refused(batch: Any, tmp_path: Path):
    write_cifar(tmp_path, synthetic(COLOUR), "protocol 2")
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError, match="test_batch"):
        data.get("cifar-10", tmp_path)


@pytest.mark.parametrize("form", ["binary", "python 2"])
def test_a_batch_that_is_missing_or_cut_short_is_named(form: str, tmp_path: Path, cache_folder: Path):
    write_cifar(tmp_path / "own", synthetic(COLOUR), form)
    batch = tmp_path / "own" / ("data_batch_2.bin" if form == "binary" else "data_batch_2")
    batch.write_bytes(batch.read_bytes()[:-100])
    with pytest.raises(DataError, match="data_batch_2"):
        data.get("cifar-10", tmp_path / "own")
    batch.unlink()
    with pytest.raises(DataError, match=r"data_batch_2(\.bin)? is missing.*binary version"):
        data.get("cifar-10", tmp_path / "own")
    assert not cache_folder.exists()


def test_a_wrong_number_of_records_is_refused(tmp_path: Path):
    write_cifar(tmp_path, synthetic(COLOUR), "binary")
    batch = tmp_path / "data_batch_5.bin"
    batch.write_bytes(batch.read_bytes()[: -3073 * 3])
    with pytest.raises(DataError, match=rf"\({TRAIN - 3}, 3, 32, 32\), where \({TRAIN}, 3, 32, 32\) is needed"):
        data.get("cifar-10", tmp_path)


@pytest.mark.parametrize("damage", ["cut", "longer", "shape", "type", "not gzip", "cut gzip", "absent"])
def test_a_damaged_idx_file_is_named(damage: str, tmp_path: Path, cache_folder: Path):
    own = tmp_path / "own"
    write_idx(own, synthetic(GREY))
    file = own / "train-images-idx3-ubyte"
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-1])
    elif damage == "longer":
        file.write_bytes(content + b"\0")
    elif damage == "shape":
        file.write_bytes(content[:7] + bytes([TRAIN + 1]) + content[8:])
    elif damage == "type":
        file.write_bytes(content[:2] + b"\x0d" + content[3:])
    else:
        file.unlink()
        packed = {"not gzip": content, "cut gzip": gzip.compress(content)[:-200]}.get(damage)
        if packed is not None:
            (own / f"{file.name}.gz").write_bytes(packed)
    with pytest.raises(DataError, match="train-images-idx3-ubyte"):
        data.get("fashion-mnist", own)
    assert not cache_folder.exists()


def test_a_compression_bomb_is_not_unpacked(tmp_path: Path):
    write_idx(tmp_path, synthetic(GREY), compressed=True)
    file = tmp_path / "t10k-labels-idx1-ubyte.gz"
    bomb = gzip.compress(gzip.decompress(file.read_bytes()) + bytes(1 << 26))
    file.write_bytes(bomb)
    with pytest.raises(DataError, match="more bytes after the header"):
        data.get("mnist", tmp_path)


def test_the_place_that_is_no_folder_is_named(tmp_path: Path):
    with pytest.raises(DataError, match="this is no folder"):
        data.get("cifar-10", tmp_path / "nowhere")
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"")
    with pytest.raises(DataError, match="a file; unpack it first"):
        data.get("cifar-10", tmp_path / "cifar-10-python.tar.gz")
    with pytest.raises(DataError, match="no batch of CIFAR-10 is there"):
        data.get("cifar-10", tmp_path)


def test_a_folder_replaces_what_is_cached(tmp_path: Path):
    first, second = synthetic(GREY), synthetic(GREY)
    second.train_images[0] ^= 0xFF
    write_idx(tmp_path, first)
    data.get("mnist", tmp_path)
    write_idx(tmp_path, second)
    data.get("mnist", tmp_path)
    assert_loads("mnist", second)
