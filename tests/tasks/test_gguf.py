"""The reader of GGUF on small files: every type of value, every encoding, and files that are damaged or foreign."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf_fakes
import numpy as np
import pytest
from gguf_fakes import content, string

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.gguf import GgufFile


def written(folder: Path, given: bytes) -> Path:
    file = folder / "x.gguf"
    file.write_bytes(given)
    return file


def test_values_are_those_that_were_written(tmp_path: Path):
    metadata = {"a": 7, "b": -0.5, "c": True, "d": "Ġé\n", "e": ["x", "", "ñ"], "f": [1, 2], "g": [1.5], "h": [False]}
    assert GgufFile(written(tmp_path, content(metadata, {}))).metadata == metadata


@pytest.mark.parametrize(
    ("kind", "code", "given"),
    [
        (0, "B", 255),
        (1, "b", -3),
        (2, "H", 65_535),
        (3, "h", -300),
        (5, "i", -70_000),
        (6, "f", 0.25),
        (10, "Q", 2**64 - 1),
        (11, "q", -(2**63)),
    ],
)
def test_numbers_of_every_size(tmp_path: Path, kind: int, code: str, given: float):
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    single = string("one") + struct.pack(f"<I{code}", kind, given)
    several = string("list") + struct.pack(f"<IIQ2{code}", 9, kind, 2, given, 0)
    assert GgufFile(written(tmp_path, head + single + several)).metadata == {"one": given, "list": [given, 0]}


@pytest.mark.parametrize("kind", [2, 3, 8])
def test_quantised_blocks_are_decoded_as_the_format_says(tmp_path: Path, kind: int):
    stored, values = gguf_fakes.blocks(kind, 6, np.random.default_rng(kind))
    ones = np.ones(3, dtype="<f4")
    file = written(tmp_path, content({}, {"first": ((3,), 0, ones.tobytes()), "x": ((3, 64), kind, stored)}))
    found = GgufFile(file)
    assert found.names() == ("first", "x")
    assert found.tensor("x").dtype == np.float32
    np.testing.assert_allclose(found.tensor("x"), np.array(values).reshape(3, 64), rtol=1e-6, atol=1e-6)
    assert found.tensor("first").tolist() == [1, 1, 1]


def test_plain_numbers_and_another_alignment(tmp_path: Path):
    values = np.random.default_rng(0).normal(size=(2, 3, 5))
    tensors = {name: ((2, 3, 5), kind, values.astype(form).tobytes()) for name, kind, form in
               (("single", 0, "<f4"), ("half", 1, "<f2"))}  # fmt: skip
    found = GgufFile(written(tmp_path, content({"general.alignment": 64}, tensors, alignment=64)))
    assert np.array_equal(found.tensor("single"), values.astype(np.float32))
    assert np.array_equal(found.tensor("half"), values.astype(np.float16).astype(np.float32))
    with pytest.raises(DataError, match="no tensor 'other'"):
        found.tensor("other")


def test_every_shorter_file_is_refused(tmp_path: Path):
    stored, _ = gguf_fakes.blocks(3, 2, np.random.default_rng(0))
    whole = content({"a": [1, 2], "s": ["x", "y"], "t": "text"}, {"x": ((2, 32), 3, stored)})
    end = len(whole) - (-len(stored) % 32)  # the padding behind the last tensor may be missing
    GgufFile(written(tmp_path, whole[:end]))
    for length in range(end):
        with pytest.raises(DataError, match=r"x\.gguf"):
            GgufFile(written(tmp_path, whole[:length]))


def test_no_damaged_byte_raises_anything_else(tmp_path: Path):
    stored, _ = gguf_fakes.blocks(8, 1, np.random.default_rng(0))
    whole = content({"a": [1, 2], "s": ["é"], "general.alignment": 32}, {"x": ((1, 32), 8, stored)})
    for place in range(len(whole) - len(stored)):
        for value in (0, 1, 0x7F, 0xFF):
            try:
                found = GgufFile(written(tmp_path, whole[:place] + bytes([value]) + whole[place + 1 :]))
            except DataError:
                continue
            for name in found.names():
                assert found.tensor(name).size == 32


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"PK\3\4" + bytes(40), "does not start with GGUF"),
        (content({}, {}, version=2), "its version is 2"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "its version is"),
        (content({}, {"x": ((32,), 14, bytes(32))}), "encoding 14; read are F32"),
        (content({}, {"x": ((2, 16), 8, bytes(34))}), "in blocks of 32"),
        (content({}, {"x": ((0,), 0, b"")}), r"shape \(0,\)"),
        (content({}, {"x": ((1,) * 5, 0, bytes(4))}), "5 dimensions"),
        (content({}, {"x": ((99,), 0, bytes(32))}), "does not lie within"),
        (content({}, {"x": ((2**40, 2**40), 0, bytes(32))}), "does not lie within"),
        (content({"general.alignment": 0}, {}), "general.alignment is 0"),
        (content({"general.alignment": 12}, {}), "general.alignment is 12"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("x") + struct.pack("<I", 13), "unknown type 13"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("x") + struct.pack("<IIQ", 9, 9, 1), "list is of the type 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63), "ends within"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + 2 * (string("x") + struct.pack("<II", 4, 1)), "'x' stands"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2) + b"\xff\xff", "utf-8"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(tmp_path: Path, given: bytes, message: str):
    with pytest.raises(DataError, match=message):
        GgufFile(written(tmp_path, given))


def test_a_tensor_that_stands_there_twice_is_refused(tmp_path: Path):
    entry: dict[str, Any] = {"x": ((1,), 0, bytes(32)), "y": ((1,), 0, bytes(32))}
    with pytest.raises(DataError, match="'x' stands there twice"):
        GgufFile(written(tmp_path, content({}, entry).replace(string("y"), string("x"))))
