"""Features by a frozen network, computed once and kept in the data cache.

A network that is not trained gives each record the same features at every step. They depend on that record alone, so
training on them is as private as training on the records.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sottovoce.privacy.errors import DataError
from sottovoce.tasks import data

_FORMAT = "1"
_LOG = logging.getLogger(__name__)


def cached(name: str, ingredients: Iterable[bytes], compute: Callable[[], Tensor]) -> Tensor:
    """``compute()``, or what it gave earlier for the same ``ingredients``, as float32 rounded to half precision.

    The file is ``features/NAME-HASH.safetensors`` in the data cache; the hash is that of all ingredients, which are the
    content of the weights and of the records, so that other weights or records never meet old features. A file that
    was cut off or cannot be read is made anew.
    """
    digest = hashlib.sha256(_FORMAT.encode())
    for ingredient in ingredients:
        digest.update(hashlib.sha256(ingredient).digest())
    file = data.root() / "features" / f"{name}-{digest.hexdigest()[:16]}.safetensors"
    if file.is_file():
        try:
            return load_file(file)["features"].float()
        except (SafetensorError, KeyError, OSError):
            _LOG.warning("%s cannot be read and is made anew", file)
    _LOG.info("computing %s, once", file)
    with torch.inference_mode():
        found = compute().to(torch.float16)
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file({"features": found.clone()}, temporary)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{file}: it cannot be written ({error}). Free some space, or set SOTTOVOCE_DATA.") from error
    return found.float()
