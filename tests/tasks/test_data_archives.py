"""Members of zip, tar and Debian archives: what is read, and what is refused."""

import dataclasses
import io
import tarfile
from pathlib import Path

import pytest
from dataset_fakes import make_deb, make_tar

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data import archives
from sottovoce.tasks.data.sources import Member, Registry, Source


def source(registry: Registry, *members: Member) -> Source:
    return Source(
        registry=registry,
        name="thing",
        version="1",
        archive="thing",
        sha256="",
        archive_size=0,
        members=members,
        reader="files",
        licence="",
    )


def read_all(folder: Path, content: bytes, where: Source) -> dict[str, bytes]:
    archive = folder / "archive"
    archive.write_bytes(content)
    return {member.role: stream.read() for member, stream in archives.parts(archive, where)}


ONE, TWO = Member(role="one", name="a/one", size=3), Member(role="two", name="a/two", size=2)
HONEST = [("a/x", b"other"), ("a/two", b"22"), ("a/one", b"111")]


@pytest.mark.parametrize("compression", ["xz", "gz", ""])
def test_the_data_of_a_debian_package_may_be_compressed_or_not(compression: str, tmp_path: Path):
    data_tar = make_tar(HONEST, f"w:{compression}")  # pyright: ignore[reportArgumentType]
    deb = make_deb(data_tar, f"data.tar.{compression}".rstrip("."))
    assert read_all(tmp_path, deb, source("debian", ONE, TWO)) == {"one": b"111", "two": b"22"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no package", "does not begin as an ar archive"),
        (make_deb(b"", "data.tar.zst"), "no data.tar that is plain or compressed"),
        (make_deb(make_tar(HONEST, "w:xz"))[:100], "a header of the package is damaged"),
        (make_deb(make_tar(HONEST, "w:xz")).replace(b"`\n", b"``", 1), "a header of the package is damaged"),
    ],
)
def test_a_damaged_debian_package_is_refused(content: bytes, message: str, tmp_path: Path):
    with pytest.raises(DataError, match=message):
        read_all(tmp_path, content, source("debian", ONE))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a\\x", "c:x"])
@pytest.mark.parametrize("first", [True, False])
def test_a_name_that_leads_outside_is_refused_wherever_it_stands(name: str, first: bool, tmp_path: Path):
    members = [(name, b""), *HONEST] if first else [*HONEST, (name, b"")]
    with pytest.raises(DataError, match="leads outside it; refused"):
        read_all(tmp_path, make_tar(members), source("npm", ONE, TWO))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a/two", b"22")], "no file is called a/one"),
        ([("a/one", b"1111"), ("a/two", b"22")], "announces 4 bytes, where an ordinary file of 3"),
        ([*HONEST, ("a/one", b"111")], "2 files are called a/one"),
    ],
)
def test_a_member_that_is_absent_doubled_or_of_another_size_is_refused(
    members: list[tuple[str, bytes]], message: str, tmp_path: Path
):
    with pytest.raises(DataError, match=message):
        read_all(tmp_path, make_tar(members), source("sdist", ONE, TWO))


def test_a_link_is_no_member(tmp_path: Path):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo("a/one")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    link = dataclasses.replace(ONE, size=0)
    with pytest.raises(DataError, match="an ordinary file of 0"):
        read_all(tmp_path, made.getvalue(), source("npm", link))


def test_members_of_an_archive_inside_are_checked_alike(tmp_path: Path):
    inner = make_tar(HONEST)
    outer = Member(role="inner", name="b/inner.tar.gz", size=len(inner))
    inside = [dataclasses.replace(member, inside=outer) for member in (ONE, TWO)]
    content = make_tar([("b/x", b""), ("b/inner.tar.gz", inner), ("a/one", b"decoy")])
    assert read_all(tmp_path, content, source("sdist", *inside)) == {"one": b"111", "two": b"22"}
    bad = make_tar([*HONEST, ("../x", b"")])
    with pytest.raises(DataError, match=r"archive, b/inner.tar.gz: it has a file '../x'"):
        outer = dataclasses.replace(outer, size=len(bad))
        inside = [dataclasses.replace(ONE, inside=outer)]
        read_all(tmp_path, make_tar([("b/inner.tar.gz", bad)]), source("sdist", *inside))
