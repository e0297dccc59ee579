"""Fits engines and host loops to Blink's isolated table: two figures a system at most, one a model.

Fitted: the cap of the batch (Blink's; all four systems share it), for each model how long its engine takes beside the
step-time table, for each host-driven system the host work of a step and of a token's visit to a layer or to an expert
of it. All else is published or chosen beforehand (`testbed.experiment.paper_load`, fixtures/profiles).
The loss is Cauchy's, of the logarithms of ours over the paper's, with 20 % as its scale: squares for what is near, and
little more for what is far than for what is further, so that figures which contradict the rest stand out instead of
bending what agrees. Searches are over grids that are drawn closer, so
the same table gives the same fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from testbed.baselines.host_driven_parameters import HostDrivenParameters, Shape, costs_among
from testbed.blink.parameters import BlinkParameters
from testbed.experiment.iteration_systems import IteratedSystem, iterated
from testbed.experiment.paper import Paper
from testbed.experiment.paper_load import SEEDS, Evaluated, evaluate
from testbed.serving.host_loop import HostLoops
from testbed.serving.host_work import Contention
from testbed.serving.models import MODELS
from testbed.workload.lengths import ShareGpt

BLINK = "blink"
SHAPES: tuple[Shape, ...] = ("tensorrt-llm", "vllm", "sglang")
SYSTEMS = (BLINK, *SHAPES)
NAMES = {"Blink": BLINK, "TensorRT-LLM 1.1.0": "tensorrt-llm", "vLLM 0.13.0": "vllm", "SGLang 0.5.8": "sglang"}
"""Name in the paper's tables → ours."""
BATCHES = (64, 80, 96, 112, 128)
"""Caps of the batch that the fit chooses among: multiples of sixteen."""
CONTEXT = 40_960
"""Tokens that graphs are captured for: Qwen-3's context, taken for every model."""

PART: Mapping[str, str] = {"tensorrt-llm": "serial_us", "vllm": "serial_us", "sglang": "hidden_us"}
"""Which part of a step's host work is fitted, by shape; the other is chosen. SGLang's lies beside the GPU's step: where
steps are longest (32B) its TPOT is shorter than vLLM's and elsewhere longer, as of work that hides while it fits."""
STARTS = (2_000.0, 300.0)
"""Where the search for a loop's two figures begins: microseconds a step, nanoseconds a visit."""
ROUNDS = 2
"""How often figures that hang together are fitted in turn."""
_SCALE = math.log(1.2)
"""What counts as near."""

Figures: TypeAlias = tuple[float, float, float]
Table: TypeAlias = Mapping[tuple[str, str], Figures]
"""(model, system) → P99 TTFT ms, P99 TPOT ms, saturation requests/s."""


class Fitted(msgspec.Struct, frozen=True):
    """All that is fitted."""

    max_batch: int
    engine_time: dict[str, float]
    """By model: the engine's times over the table's."""
    step_us: dict[str, float]
    """By shape: host work of a step, the `PART` of it that is fitted."""
    visit_ns: dict[str, float]
    """By shape: host work of a token's visit."""


def fitted_of(loops: HostLoops) -> Fitted:
    """What fixtures/profiles/host-loops.toml has. Raises ValueError where it lacks a fitted figure."""
    missing = sorted(set(MODELS) - set(loops.engine_time))
    if missing or loops.max_batch is None:
        raise ValueError(f"host-loops.toml has no max_batch, or no engine_time for {', '.join(missing) or 'no model'}")
    return Fitted(
        loops.max_batch,
        dict(loops.engine_time),
        {shape: getattr(loops.loops[shape], PART[shape]) for shape in SHAPES},
        {shape: loops.loops[shape].visit_ns for shape in SHAPES},
    )


def isolated_table(paper: Paper) -> dict[tuple[str, str], Figures]:
    """The paper's table "below saturation". Raises ValueError where there is none."""
    for table in paper.tables:
        if table.name == "below saturation":
            rows = {(row.model, NAMES[row.system]): row.values for row in table.rows}
            return {key: (values[0], values[1], values[2]) for key, values in rows.items()}
    raise ValueError("the paper has no table 'below saturation'")


def system_of(name: str, model: str, fitted: Fitted, loops: HostLoops) -> IteratedSystem:
    """`name` of `SYSTEMS` with `model`. Raises KeyError for another name."""
    scale = fitted.engine_time[model]
    if name == BLINK:
        blink = BlinkParameters(model=model, max_batch=fitted.max_batch, engine_time=scale)
        return iterated(blink, context=CONTEXT)
    shape: Shape = next(shape for shape in SHAPES if shape == name)
    found: dict[str, Any] = {PART[name]: fitted.step_us[name], "visit_ns": fitted.visit_ns[name]}
    parameters = HostDrivenParameters(model=model, shape=shape, max_batch=fitted.max_batch, engine_time=scale, **found)
    return iterated(parameters, costs_among(loops, parameters), context=CONTEXT)


def evaluated(
    name: str,
    model: str,
    fitted: Fitted,
    loops: HostLoops,
    *,
    contention: Contention | None = None,
    law: ShareGpt | None = None,
    seeds: Sequence[int] = SEEDS,
) -> Evaluated:
    """One system with one model under the paper's load."""
    found = system_of(name, model, fitted, loops)
    return evaluate(found, model, law=law, contention=contention, seeds=seeds)


def distance(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Cauchy's loss of the logarithms of the ratios, summed."""
    off = (math.log(one / other) / _SCALE for one, other in zip(ours, theirs, strict=True))
    return math.fsum(math.log1p(value**2) for value in off)


class LeftOut(NamedTuple):
    """What a fit to the other models says of one."""

    model: str
    fitted: Fitted
    ours: dict[str, Figures]
    """By system."""


def leave_one_out(table: Table, loops: HostLoops, seeds: Sequence[int] = SEEDS) -> Iterator[LeftOut]:
    """Each model predicted from a fit to the others, as `Fit.best` has it for models that its table lacks."""
    for model in sorted({model for model, _ in table}):
        others = {key: values for key, values in table.items() if key[0] != model}
        fitted = Fit(others, loops, seeds).best()
        ours = {name: evaluated(name, model, fitted, loops, seeds=seeds).figures for name in SYSTEMS}
        yield LeftOut(model, fitted, ours)


class Fit:
    """One fit to one table."""

    def __init__(self, table: Table, loops: HostLoops, seeds: Sequence[int] = SEEDS) -> None:
        self._table = table
        self._loops = loops
        self._seeds = seeds
        self.models = sorted({model for model, _ in table})

    def best(self) -> Fitted:
        """The batch and the engines by Blink's rows, the loops by theirs, and both once more by all rows.

        A model that the table lacks gets the geometric mean of the engines.
        """
        fitted = min(map(self._with_batch, BATCHES), key=lambda tried: self._loss(tried, (BLINK,), self.models))
        for shape in SHAPES:
            fitted = self._loop(shape, fitted)
        for _ in range(ROUNDS):
            fitted = self._engines(fitted, SYSTEMS)
            for shape in SHAPES:
                fitted = self._loop(shape, fitted)
        known = [fitted.engine_time[model] for model in self.models]
        mean = math.exp(math.fsum(math.log(value) for value in known) / len(known))
        times = {model: fitted.engine_time[model] if model in self.models else mean for model in MODELS}
        return msgspec.structs.replace(fitted, engine_time=times)

    def _with_batch(self, batch: int) -> Fitted:
        return self._engines(Fitted(batch, dict.fromkeys(MODELS, 1.0), {}, {}), (BLINK,))

    def _engines(self, fitted: Fitted, systems: Sequence[str]) -> Fitted:
        for model in self.models:

            def of(scale: float, fitted: Fitted = fitted, model: str = model) -> Fitted:
                return msgspec.structs.replace(fitted, engine_time={**fitted.engine_time, model: scale})

            def loss(scale: float, of: Callable[[float], Fitted] = of, model: str = model) -> float:
                return self._loss(of(scale), systems, (model,))

            fitted = of(least(loss, 0.7, 1.5))
        return fitted

    def _loop(self, shape: str, fitted: Fitted) -> Fitted:
        """Both figures of a loop in turn: first from anywhere, then from near where they are."""
        known = shape in fitted.step_us
        at = [fitted.step_us[shape], fitted.visit_ns[shape]] if known else [*STARTS]
        reach, points, rounds = (1.5, 5, 3) if known else (8.0, 7, 4)
        for _ in range(ROUNDS):
            for turn in (0, 1):

                def loss(value: float, turn: int = turn) -> float:
                    tried = [*at[:turn], value, *at[turn + 1 :]]
                    return self._loss(self._of(fitted, shape, *tried), (shape,), self.models)

                at[turn] = least(loss, at[turn] / reach, at[turn] * reach, points=points, rounds=rounds)
            reach = math.sqrt(reach)
        return self._of(fitted, shape, *at)

    @staticmethod
    def _of(fitted: Fitted, shape: str, step_us: float, visit_ns: float) -> Fitted:
        return msgspec.structs.replace(
            fitted,
            step_us={**fitted.step_us, shape: step_us},
            visit_ns={**fitted.visit_ns, shape: visit_ns},
        )

    def _loss(self, fitted: Fitted, systems: Sequence[str], models: Sequence[str]) -> float:
        return math.fsum(
            distance(evaluated(name, model, fitted, self._loops, seeds=self._seeds).figures, self._table[model, name])
            for name in systems
            for model in models
        )


def least(function: Callable[[float], float], low: float, high: float, *, points: int = 7, rounds: int = 4) -> float:
    """Where `function` is least between two positive bounds: a geometric grid, drawn closer `rounds` times."""
    best = low
    for _ in range(rounds):
        step = math.pow(high / low, 1 / (points - 1))
        best = min((low * math.pow(step, place) for place in range(points)), key=function)
        low, high = max(low, best / step), min(high, best * step)
    return best
