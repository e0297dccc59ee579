"""The server's own counters in Prometheus text form, under the names that vLLM made usual.

Identities that hold at every scrape (known-faults.md "Load generation" 20): calls received = answered + failed +
running + waiting; the histogram's last bucket = its count. Times are seconds of wall clock, as a client feels them;
`looplane_dilation` says how much slower than the modelled hardware that is.

It may not know HTTP or requests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

_TTFT_BOUNDS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
"""vLLM's buckets of the time to the first token, in seconds."""


class Metrics:
    """Counters of one server."""

    def __init__(self, model: str, dilation: float) -> None:
        self._model = model.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._dilation = dilation
        self.waiting = 0
        """Choices submitted that have no token yet."""
        self.running = 0
        """Choices that stream."""
        self.received = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._ttft_counts = [0] * (len(_TTFT_BOUNDS) + 1)
        self._ttft_sum = 0.0

    def submitted(self) -> None:
        """One more choice waits."""
        self.received += 1
        self.waiting += 1

    def started(self, prompt_tokens: int, seconds: float) -> None:
        """A waiting choice has its first token, `seconds` after its call arrived."""
        self.waiting -= 1
        self.running += 1
        self.prompt_tokens += prompt_tokens
        self._ttft_counts[bisect_left(_TTFT_BOUNDS, seconds)] += 1
        self._ttft_sum += seconds

    def ended(self, *, started: bool, reason: str, failed: bool) -> None:
        """A choice has ended, by its finish reason or by what went wrong."""
        if started:
            self.running -= 1
        else:
            self.waiting -= 1
        (self.failed if failed else self.finished)[reason] += 1

    def render(self) -> str:
        """The exposition text, version 0.0.4."""
        label = f'model_name="{self._model}"'
        lines = [
            *_single("vllm:num_requests_running", "gauge", "Choices that stream.", label, self.running),
            *_single("vllm:num_requests_waiting", "gauge", "Choices without a token yet.", label, self.waiting),
            *_single("vllm:prompt_tokens_total", "counter", "Prompt tokens prefilled.", label, self.prompt_tokens),
            *_single("vllm:generation_tokens_total", "counter", "Tokens generated.", label, self.generation_tokens),
            *_single("looplane_requests_received_total", "counter", "Choices submitted.", label, self.received),
            *_by_reason("vllm:request_success_total", "Choices answered whole.", label, self.finished),
            *_by_reason("looplane_requests_failed_total", "Choices refused, broken off, left.", label, self.failed),
            *self._histogram(label),
            *_single("looplane_dilation", "gauge", "Wall seconds a true second takes.", label, self._dilation),
        ]
        return "\n".join(lines) + "\n"

    def _histogram(self, label: str) -> list[str]:
        name = "vllm:time_to_first_token_seconds"
        lines = [f"# HELP {name} From a call's arrival to its first token, wall clock.", f"# TYPE {name} histogram"]
        total = 0
        for bound, count in zip((*_TTFT_BOUNDS, "+Inf"), self._ttft_counts, strict=True):
            total += count
            lines.append(f'{name}_bucket{{{label},le="{bound}"}} {total}')
        return [*lines, f"{name}_sum{{{label}}} {self._ttft_sum:.9g}", f"{name}_count{{{label}}} {total}"]


def _single(name: str, kind: str, text: str, label: str, value: float) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name}{{{label}}} {value}"]


def _by_reason(name: str, text: str, label: str, counts: Counter[str]) -> list[str]:
    rows = [f'{name}{{{label},finished_reason="{reason}"}} {counts[reason]}' for reason in sorted(counts)]
    return [f"# HELP {name} {text}", f"# TYPE {name} counter", *rows]
