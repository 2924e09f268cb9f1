"""Which weights a model folder holds: KV that other weights computed must never be found under the same name."""

from __future__ import annotations

import hashlib
from pathlib import Path

_SAMPLES = 256
_SAMPLE_BYTES = 4096
_WEIGHTS = ("*.safetensors", "*.bin")


def folder_fingerprint(folder: Path) -> str:
    """32 hexadecimal digits that change with the configuration and the weights of the model in ``folder``.

    Of every weight file its name, its size and up to 256 pages of 4 KiB spread evenly over it are looked at, the first
    and the last among them: at most 1 MiB per file, and a model tuned further differs in nearly all of them. The
    folder's own name and the files' times do not count.
    """
    digest = hashlib.sha256()
    files = sorted(path for pattern in ("config.json", *_WEIGHTS) for path in folder.glob(pattern))
    for path in files:
        digest.update(f"{len(path.name)}:{path.name}:{path.stat().st_size};".encode())
        digest.update(_sampled(path))
    return digest.hexdigest()[:32]


def _sampled(path: Path) -> bytes:
    """Digest of a file's samples."""
    digest = hashlib.sha256()
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _SAMPLES * _SAMPLE_BYTES:
            digest.update(file.read())
        else:
            for number in range(_SAMPLES):
                file.seek((size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.digest()
