"""The API server of a host-driven system: requests in, streams out; tokenising and detokenising on the host's CPU.

What vLLM calls API server and SGLang tokenizer manager. It knows clients and the engine core, no batch and no device.
Its front end's contract is Blink's: the same refusals, the same streams (`testbed.serving.intake`, `client_side`).
"""

from __future__ import annotations

import struct
from collections import deque

from testbed.baselines.host_driven_parameters import HostCosts, HostDrivenParameters
from testbed.baselines.host_driven_states import STAGE_TABLE, Stage, StageMove
from testbed.baselines.host_messages import AddRequest, RequestsFailed, StepOutput, WithdrawRequest
from testbed.events.schema import RequestAbandoned, RequestArrived, RequestServed, RequestTokenised
from testbed.machine import NOTHING, Compute, Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.serving.client_side import ClientSide, Listener
from testbed.serving.host_work import HostWork, HostWorked
from testbed.serving.intake import Intake, Refusal
from testbed.serving.requests import Abandon, Finish, Request, Sampling, Submit
from testbed.serving.tokens import Vocabulary
from testbed.units import MILLISECOND, Nanoseconds

_FLOAT = struct.Struct("<f")
SLICE: Nanoseconds = MILLISECOND
"""A prompt is taken in by pieces of at most so much work, so that texts of tokens go out between them: the real servers
give prompts a thread or a process of their own (vLLM's tokeniser thread, SGLang's tokenizer manager). Our choice."""


class ServedRequest(Listener):
    """One request of a client. Stages change by `move` alone."""

    def __init__(self, request: Request, number: int, prompt: list[int], vocabulary: Vocabulary) -> None:
        super().__init__(request, number, prompt, vocabulary)
        self.stage = STAGE_TABLE.first
        self.seen = 0
        """Tokens passed on."""

    def move(self, move: StageMove) -> None:
        """Moves to the next stage. Raises `IllegalMove` and changes nothing if the table has none."""
        self.stage = STAGE_TABLE.after(self.stage, move)


class TakingIn:
    """A prompt that is being taken in, or waits for those that came before it."""

    __slots__ = ("left", "served")

    def __init__(self, served: ServedRequest, left: Nanoseconds) -> None:
        self.served = served
        self.left = left
        """Work that has not been asked for."""


class ApiServer:
    """The machine "api" of a host node. Answers go to the port `to` of this node."""

    name = "api"

    def __init__(
        self,
        parameters: HostDrivenParameters,
        costs: HostCosts,
        *,
        vocabulary: Vocabulary,
        core: str = "core",
        to: str = "clients",
    ) -> None:
        self._limit = parameters.queue_limit
        self._costs = costs
        self._vocabulary = vocabulary
        self._core = core
        self._intake = Intake(vocabulary, parameters.context())
        self._client = ClientSide[ServedRequest](to)
        self._numbers = 0
        self._tickets = 0
        self._working: dict[int, TakingIn | StepOutput | RequestsFailed] = {}
        self._prompts: deque[TakingIn] = deque()
        """In the order of their arrival; the first is worked on."""
        self._served: dict[int, ServedRequest] = {}

    @property
    def serving(self) -> int:
        """Requests that the core has."""
        return len(self._served)

    @property
    def working(self) -> int:
        """Pieces of work under way."""
        return len(self._working)

    def deadline(self) -> None:
        """Never: messages alone move it."""

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # the contract
        """Nothing is ever due."""
        return NOTHING

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # it keeps no time
        """Takes a request, a client's departure, the core's words or the end of a piece of work."""
        out: list[Effect] = []
        match message:
            case Submit(request=request):
                self._arrive(request, out)
            case Abandon(name=name):
                self._depart(name, out, satisfied=False)
            case Finish(name=name):
                self._depart(name, out, satisfied=True)
            case StepOutput(tokens=tokens):
                self._work("detokenise", self._costs.detokenise(len(tokens)), message, out)
            case RequestsFailed():
                # Behind the tokens that came before it.
                self._work("detokenise", 0, message, out)
            case HostWorked(ticket=ticket) if ticket in self._working:
                self._worked(self._working.pop(ticket), out)
            case _:
                raise UnexpectedMessage(self.name, message)
        return out

    def _arrive(self, request: Request, out: list[Effect]) -> None:
        self._numbers += 1
        number, name = self._numbers, request.name
        out.append(Emit(RequestArrived(number, name, len(request.prompt), request.max_tokens)))
        if self._client.find(name) is not None:
            self._client.turn_away(number, name, "invalid_request", f"a request named {name} is being served", out)
            return
        prompt = self._intake.read(request)
        if isinstance(prompt, Refusal):
            self._client.turn_away(number, name, *prompt, out)
            return
        served = ServedRequest(request, number, prompt, self._vocabulary)
        self._client.join(served)
        self._prompts.append(TakingIn(served, self._costs.take_in(len(prompt), text=not request.prompt_ids)))
        if len(self._prompts) == 1:
            self._take_in(out)

    def _take_in(self, out: list[Effect]) -> None:
        """The next piece of work on the first prompt whose client is still there."""
        while self._prompts and self._prompts[0].served.stage is not Stage.TOKENISING:
            self._prompts.popleft()
        if not self._prompts:
            return
        first = self._prompts[0]
        piece = min(SLICE, first.left)
        first.left -= piece
        self._work("tokenise", piece, first, out)

    def _taken_in(self, first: TakingIn, out: list[Effect]) -> None:
        """A piece is done."""
        if not first.left:
            self._prompts.popleft()
            self._tokenised(first.served, out)
        self._take_in(out)

    def _tokenised(self, served: ServedRequest, out: list[Effect]) -> None:
        if served.stage is not Stage.TOKENISING:
            return  # its client has left meanwhile
        number, request = served.number, served.request
        out.append(Emit(RequestTokenised(number, len(served.prompt))))
        refusal = self._intake.misfit(request, served.prompt)
        if refusal is None and len(self._served) >= self._limit:
            refusal = Refusal("ring_full", f"{self._limit} requests are being served or wait")
        if refusal is not None:
            served.move(StageMove.END)
            self._client.refuse(served, *refusal, out)
            return
        served.move(StageMove.SUBMIT)
        self._served[number] = served
        message = AddRequest(number, tuple(served.prompt), request.max_tokens, as_on_device(request.sampling))
        out.append(Deliver(self._core, message))

    def _depart(self, name: str, out: list[Effect], *, satisfied: bool) -> None:
        """A client listens no more; `satisfied` says that it has its whole answer."""
        served = self._client.find(name)
        if served is None:
            return  # its last message and the news of its end have crossed
        self._client.leave(served)
        if self._served.pop(served.number, None) is not None:
            out.append(Deliver(self._core, WithdrawRequest(served.number)))
        served.move(StageMove.END)
        number = served.number
        out.append(Emit(RequestServed(number, served.seen, "stop") if satisfied else RequestAbandoned(number)))

    def _work(
        self, operation: str, amount: Nanoseconds, then: TakingIn | StepOutput | RequestsFailed, out: list[Effect]
    ) -> None:
        self._tickets += 1
        self._working[self._tickets] = then
        out.append(Compute(HostWork(self._tickets, self.name, operation, amount)))

    def _worked(self, done: TakingIn | StepOutput | RequestsFailed, out: list[Effect]) -> None:
        match done:
            case TakingIn():
                self._taken_in(done, out)
            case StepOutput():
                self._stream(done, out)
            case RequestsFailed(requests=requests, reason=reason, detail=detail):
                for served in filter(None, (self._served.pop(number, None) for number in requests)):
                    served.move(StageMove.END)
                    self._client.refuse(served, reason, detail, out)

    def _stream(self, output: StepOutput, out: list[Effect]) -> None:
        """Steps 12 and 13 for one step's tokens."""
        for number, token, reason in zip(output.requests, output.tokens, output.reasons, strict=True):
            served = self._served.get(number)
            if served is None:
                continue  # its client has left
            self._client.stream(served, served.seen, (token,), reason, out)
            served.seen += 1
            if reason is not None:
                del self._served[number]
                served.move(StageMove.END)
                out.append(Emit(RequestServed(number, served.seen, reason)))


def as_on_device(sampling: Sampling) -> Sampling:
    """Sampling as a device's tensors have it: 32-bit floats, as in Blink's descriptors."""
    temperature, top_p = (_FLOAT.unpack(_FLOAT.pack(value))[0] for value in (sampling.temperature, sampling.top_p))
    return Sampling(temperature, top_p, sampling.seed, sampling.ignore_eos)
