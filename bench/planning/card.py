"""What is planned for: a model on devices, the KV memory that the engine leaves it, and the cost of its steps."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.planning.calibration import calibrate
from bench.planning.engine_run import EngineInProcess
from bench.simulation.architectures import Architecture
from bench.simulation.cost_model import Efficiency, RooflineCost, StepCost
from bench.simulation.hardware import Device
from bench.simulation.job import Job
from bench.simulation.loop import Outcome, Window, simulate
from bench.simulation.paged import PagedSystem
from bench.simulation.work import StepWork
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.memory_plan import activation_bytes, check_model_fits, plan_memory
from pagoda_inference.pace import Pace
from pagoda_inference.rates import PROMPT_TOKENS, Rates
from pagoda_inference.settings import Settings

PLANNED = Efficiency(
    weights=0.8, kv=0.7, arithmetic=0.5, link=0.6, host=0.8, step_s=1.5e-3, row_s=15e-6, block_s=0.0
)  # fmt: skip
"""Of this engine on a GPU. Assumed, not measured: see docs/planning.md."""
VOCABULARY, MLP = 128_000, 4
"""For what activations take: no more than a large model's, and the width of its MLP over that of its residual."""
USABLE = 0.97
"""Of a device's memory, what its driver leaves."""
TOKEN_BUDGET, MAX_RUNNING = 2048, 256
"""Steps that are planned on a GPU, where the environment does not say."""
_TOKEN_BUDGET, _MAX_RUNNING = "PAGODA_ENGINE_TOKEN_BUDGET", "PAGODA_ENGINE_MAX_RUNNING"


@dataclass(frozen=True)
class Card:
    """name: for people. blocks: of the KV pool, of ``settings.block_size`` tokens. context: longest sequence."""

    name: str
    blocks: int
    context: int
    cost: StepCost
    settings: Settings

    def run(
        self,
        jobs: Sequence[Job],
        window: Window,
        observe: Callable[[float, StepWork], None] = lambda now, work: None,
    ) -> Outcome:
        """The engine's scheduler, pool and pace on this card, in virtual time. observe: as of ``simulate``."""
        settings = self.settings
        system = PagedSystem(
            self.blocks,
            settings.block_size,
            keep=True,
            token_budget=settings.token_budget,
            max_running=settings.max_running,
            pace=Pace(settings.step_target_ms / 1000, rates(self.cost)),
        )
        return simulate(system, self.cost, jobs, window, observe)


def rates(cost: StepCost) -> Rates:
    """What the engine would measure of such steps when it starts."""
    one = cost.seconds(StepWork(rows=1, context=1))
    row = cost.seconds(StepWork(rows=2, context=2)) - one
    prompt = StepWork(prompt_tokens=PROMPT_TOKENS, prompt_pairs=PROMPT_TOKENS**2 / 2, prompt_rows=1)
    return Rates(one - row, row, max(0.0, cost.seconds(prompt) - one) / (PROMPT_TOKENS - 1))


def on_device(model: Architecture, device: Device, devices: int, settings: Settings) -> Card:
    """Raises ModelLoadError where the model does not fit, or has no context as long as the settings want."""
    if settings.context_length is not None and settings.context_length > model.longest:
        raise ModelLoadError(f"The context length {settings.context_length} is above the model's own, {model.longest}.")
    hidden, width = model.hidden, model.bytes_per_value
    plan = {
        "available": int(USABLE * device.memory_bytes * devices),
        "weights": int(model.weight_bytes),
        "activations": devices * activation_bytes(hidden, MLP * hidden, VOCABULARY, width),
    }
    name = f"{model.name} on {devices} x {device.name}" if devices > 1 else f"{model.name} on {device.name}"
    try:
        check_model_fits(**plan)
    except ModelLoadError as error:
        needs = str(error).partition(":")[0]
        raise ModelLoadError(
            f"{name}: {needs[0].lower()}{needs[1:]}: choose more devices (--devices), larger ones or a smaller model."
        ) from None
    memory = plan_memory(
        **plan,
        bytes_per_block=settings.block_size * model.kv_bytes_per_token,
        block_size=settings.block_size,
        on_gpu=True,
        pool_tokens=settings.pool_tokens,
        pool_gib=settings.pool_gib,
    )
    cost = RooflineCost(model, device, devices, PLANNED)
    return Card(name, memory.total_blocks, settings.context_length or model.longest, cost, settings)


def on_this_machine(settings: Settings) -> Card:
    """The model of the settings on this machine's processor, its steps measured now."""
    engine = EngineInProcess(settings)
    try:
        return of_engine(engine, calibrate(engine))
    finally:
        engine.close()


def of_engine(engine: EngineInProcess, cost: StepCost) -> Card:
    """As the engine is loaded here."""
    info = engine.info
    return Card(f"{info.id} on this machine's processor", info.total_blocks, info.context_length, cost, engine.settings)


def planned_settings(dtype: str, on_cpu: bool, environment: Mapping[str, str] | None = None) -> Settings:
    """The engine's own, as its environment has them, and the larger steps of a GPU where it says nothing of them.

    Without what the simulation knows nothing of: no tiers, no drafts. Raises SettingsError.
    """
    environment = os.environ if environment is None else environment
    own = {name: text for name, text in environment.items() if text}
    if on_cpu:
        settings = dataclasses.replace(Settings.read(own), device="cpu")
    else:
        settings = Settings.read({_TOKEN_BUDGET: str(TOKEN_BUDGET), _MAX_RUNNING: "1"} | own)
        if _MAX_RUNNING not in own:
            settings = dataclasses.replace(settings, max_running=min(MAX_RUNNING, settings.token_budget))
    return dataclasses.replace(settings, dtype=dtype, host_gib=0.0, disk_gib=0.0, speculate="off", draft="")
