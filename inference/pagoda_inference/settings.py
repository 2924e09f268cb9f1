"""The engine's settings: each has an environment variable, most have a flag; ``docs/engine.md`` has the table."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pagoda_inference.address import default_address


class SettingsError(ValueError):
    """A setting cannot be what it is. The message is one sentence naming it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a field of Settings comes from. ``parse`` raises ValueError."""

    variable: str
    help: str
    parse: Callable[[str], Any] = str
    flag: str | None = None


def default_home() -> Path:
    """``var`` in the checkout this runs from, else in the working directory."""
    root = Path(__file__).resolve().parents[2]
    return (root if (root / "pyproject.toml").is_file() else Path.cwd()) / "var"


def _switch(text: str) -> bool:
    if text.lower() not in ("0", "1", "true", "false", "yes", "no"):
        raise ValueError("expected 0 or 1")
    return text.lower() in ("1", "true", "yes")


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise ValueError("expected a whole number above 0")
    return number


def _amount(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise ValueError("expected a number of at least 0")
    return number


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"expected {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    return parse


def _device(text: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise ValueError("expected auto, cpu, cuda or cuda:N")
    return text


def _context_length(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 2:
        raise ValueError("expected a whole number above 1: a token of a prompt and one of its answer")
    return number


@dataclass(frozen=True)
class Settings:
    """Everything ``pagoda-inference`` can be told. None stands for: decided from the model or the machine."""

    home: Annotated[Path, Setting("PAGODA_HOME", "directory of everything generated", Path)] = default_home()  # noqa: RUF009
    model: Annotated[
        str,
        Setting(
            "PAGODA_MODEL",
            "a folder, a GGUF file, a hub id, or echo; empty: SmolLM2-135M-Instruct, fetched once",
            flag="--model",
        ),
    ] = ""
    address: Annotated[
        str,
        Setting(
            "PAGODA_ENGINE_ADDRESS",
            "where to listen: unix:/path, host:port or tls:host:port; empty: a socket under PAGODA_HOME",
            flag="--address",
        ),
    ] = ""
    token: Annotated[
        str, Setting("PAGODA_ENGINE_TOKEN", "what callers must present; required beyond this machine; empty: nothing")
    ] = ""
    tls_certificate: Annotated[
        Path | None,
        Setting("PAGODA_ENGINE_TLS_CERTIFICATE", "PEM file of the certificate chain for a tls: address", Path),
    ] = None
    tls_key: Annotated[Path | None, Setting("PAGODA_ENGINE_TLS_KEY", "PEM file of the certificate's key", Path)] = None
    dtype: Annotated[
        str,
        Setting(
            "PAGODA_ENGINE_DTYPE",
            "auto, float32, bfloat16 or float16; on a CPU also int8 or q4",
            _one_of("auto", "float32", "bfloat16", "float16", "int8", "q4"),
            "--dtype",
        ),
    ] = "auto"
    device: Annotated[str, Setting("PAGODA_ENGINE_DEVICE", "auto, cpu, cuda or cuda:N", _device, "--device")] = "auto"
    tensor_parallel: Annotated[
        int,
        Setting(
            "PAGODA_ENGINE_TENSOR_PARALLEL",
            "devices of this machine that share each layer of the model, a process each",
            _count,
            "--tensor-parallel",
        ),
    ] = 1
    cuda_graphs: Annotated[
        bool,
        Setting("PAGODA_ENGINE_CUDA_GRAPHS", "on a GPU, run decodes as graphs that are captured at start", _switch),
    ] = True
    compile: Annotated[
        bool,
        Setting("PAGODA_ENGINE_COMPILE", "on a GPU, run all other steps through torch.compile; slow at first", _switch),
    ] = False
    block_size: Annotated[
        int, Setting("PAGODA_ENGINE_BLOCK_SIZE", "tokens of a KV block, 1 to 256", _count, "--block-size")
    ] = 16
    pool_tokens: Annotated[
        int | None,
        Setting(
            "PAGODA_ENGINE_POOL_TOKENS", "size of the KV pool in tokens; empty: by memory", _count, "--pool-tokens"
        ),
    ] = None
    pool_gib: Annotated[
        float | None,
        Setting("PAGODA_ENGINE_POOL_GIB", "size of the KV pool in GiB, instead of tokens", _amount, "--pool-gib"),
    ] = None
    host_gib: Annotated[
        float | None,
        Setting(
            "PAGODA_ENGINE_HOST_GIB",
            "main memory for KV that leaves the pool, in GiB; 0: off; empty: by the machine",
            _amount,
            "--host-gib",
        ),
    ] = None
    disk_gib: Annotated[
        float,
        Setting("PAGODA_ENGINE_DISK_GIB", "disk for KV that leaves main memory, in GiB; 0: off", _amount, "--disk-gib"),
    ] = 0.0
    tier_folder: Annotated[
        Path | None,
        Setting("PAGODA_ENGINE_TIER_FOLDER", "directory of the KV on disk; empty: kv under PAGODA_HOME", Path),
    ] = None
    preemption: Annotated[
        str,
        Setting(
            "PAGODA_ENGINE_PREEMPTION",
            "what a preempted request does with its KV: swap, recompute, or auto: what is faster",
            _one_of("auto", "swap", "recompute"),
            "--preemption",
        ),
    ] = "auto"
    context_length: Annotated[
        int | None,
        Setting(
            "PAGODA_ENGINE_CONTEXT_LENGTH",
            "most tokens of a sequence; empty: the model's own",
            _context_length,
            "--context-length",
        ),
    ] = None
    token_budget: Annotated[
        int, Setting("PAGODA_ENGINE_TOKEN_BUDGET", "most tokens computed in a step", _count, "--token-budget")
    ] = 512
    step_target_ms: Annotated[
        float,
        Setting(
            "PAGODA_ENGINE_STEP_TARGET_MS",
            "milliseconds that a step should not exceed, so that nobody waits long for the next; 0: no matter",
            _amount,
            "--step-target-ms",
        ),
    ] = 160.0
    max_running: Annotated[
        int, Setting("PAGODA_ENGINE_MAX_RUNNING", "most requests in a step", _count, "--max-running")
    ] = 64
    max_waiting: Annotated[
        int,
        Setting(
            "PAGODA_ENGINE_MAX_WAITING", "most requests waiting per account; more are refused", _count, "--max-waiting"
        ),
    ] = 1024
    speculate: Annotated[
        str,
        Setting(
            "PAGODA_ENGINE_SPECULATE",
            "how next tokens are guessed: lookup, from the text itself; draft, by the draft model; or off",
            _one_of("off", "lookup", "draft"),
            "--speculate",
        ),
    ] = "off"
    draft: Annotated[
        str,
        Setting(
            "PAGODA_ENGINE_DRAFT",
            "the draft model, smaller and with the same tokenizer: a folder, a GGUF file or a hub id",
            flag="--draft",
        ),
    ] = ""
    draft_tokens: Annotated[
        int,
        Setting("PAGODA_ENGINE_DRAFT_TOKENS", "most tokens guessed for a sequence in a step", _count, "--draft-tokens"),
    ] = 4
    require_accounts: Annotated[
        bool,
        Setting(
            "PAGODA_ENGINE_REQUIRE_ACCOUNTS",
            "refuse everybody until the platform has set accounts",
            _switch,
            "--require-accounts",
        ),
    ] = False
    accounts: Annotated[
        Path | None,
        Setting(
            "PAGODA_ENGINE_ACCOUNTS",
            "JSON file with a list of accounts, until the platform sets others",
            Path,
            "--accounts",
        ),
    ] = None
    log_bytes: Annotated[
        int, Setting("PAGODA_ENGINE_LOG_BYTES", "bytes of unacknowledged events kept per account", _count)
    ] = 16 << 20
    keep_s: Annotated[
        float, Setting("PAGODA_ENGINE_KEEP_S", "seconds that an ended generation waits to be acknowledged", _amount)
    ] = 600.0
    step_ms: Annotated[
        float,
        Setting("PAGODA_ENGINE_STEP_MS", "least milliseconds of a step of the echo model", _amount, "--step-ms"),
    ] = 0.0
    metrics_address: Annotated[
        str,
        Setting(
            "PAGODA_ENGINE_METRICS_ADDRESS",
            "host:port of Prometheus metrics; empty: none",
            flag="--metrics-address",
        ),
    ] = ""
    debug: Annotated[
        bool,
        Setting("PAGODA_ENGINE_DEBUG", "check the pool's invariants after every step, and stop at a fault", _switch),
    ] = False

    @classmethod
    def read(cls, environment: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None) -> Settings:
        """Flags (by field) over environment over defaults. An empty text counts as unset. Raises SettingsError."""
        environment = os.environ if environment is None else environment
        flags = flags or {}
        values: dict[str, Any] = {}
        for field, setting in described().items():
            name, text = setting.variable, environment.get(setting.variable, "")
            if setting.flag is not None and field in flags:
                name, text = setting.flag, flags[field]
            if text == "":
                continue
            try:
                values[field] = setting.parse(text)
            except ValueError as error:
                raise SettingsError(f"{name} cannot be {text!r}: {error}") from None
        settings = cls(**values)
        settings._check()
        return settings

    @property
    def engine_address(self) -> str:
        """Where to listen: ``address``, or the socket under ``home``."""
        return self.address or default_address(self.home)

    @property
    def kv_folder(self) -> Path:
        """Where the disk tier lies: ``tier_folder``, or a folder under ``home``."""
        return self.tier_folder or self.home / "kv"

    def _check(self) -> None:
        if self.block_size > 256:
            raise SettingsError(f"--block-size cannot be {self.block_size}: a block has 1 to 256 tokens")
        if self.max_running > self.token_budget:
            raise SettingsError(
                f"--max-running ({self.max_running}) cannot be above --token-budget ({self.token_budget}): "
                "each running request takes at least one token of a step"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise SettingsError("PAGODA_ENGINE_TLS_CERTIFICATE and PAGODA_ENGINE_TLS_KEY only work together")
        if (self.speculate == "draft") != bool(self.draft):
            raise SettingsError("PAGODA_ENGINE_SPECULATE=draft and PAGODA_ENGINE_DRAFT only work together")
        if self.pool_tokens is not None and self.pool_gib is not None:
            raise SettingsError("--pool-tokens and --pool-gib both say how large the pool is: choose one")
        if self.require_accounts and self.accounts is not None:
            raise SettingsError("--require-accounts and --accounts contradict each other: choose one")


def described() -> dict[str, Setting]:
    """Field -> its Setting, in the order of Settings."""
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}
