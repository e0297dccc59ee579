"""The API held against its own description, by schemathesis with every check, as a runner, an admin and a stranger.

The default suite has one seed and few examples; `--soak` has five seeds, 40 examples for each operation, and the phases
that enumerate bounds and follow links. Odd ids, cursors, filters, NULs and other scripts' letters are what it is made
of (known fault F12).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from webui.accounts import services as accounts
from webui.accounts.models import Quota, User
from webui.benches.models import Bench, Health, Lease
from webui.hooks.models import Webhook
from webui.hooks.services import hook_ping
from webui.runs.models import Run, Visibility
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)

CONFIG = """
[checks]
# What no schema can say (is this text an experiment? is this host public?) is refused with 422 as well, what is not
# there any more or not the file's with 412 and 416, and a body beyond all measure with 413 before it is looked at.
positive_data_acceptance.expected-statuses = ["2xx", "3xx", "401", "403", "404", "409", "412", "416", "422", "429"]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "422", "429"]

[[operations]]
include-operation-id = "token_revoke"
enabled = false  # the one that ends the caller's own token; test_account has it

[parameters]
"query.wait" = 0  # or each example would take up to 30 s; test_runs and test_events have it
"""
SEEDS = (1, 2, 3, 4, 5)


@pytest.fixture
def known(
    user: User, make_user: Callable[..., User], make_run: Callable[..., Run], put_run: Callable[[str], Path]
) -> dict[str, object]:
    """Things that everybody may read, and their ids as path parameters: random ids alone would find nothing."""
    rich = make_run(state=State.FINISHED, outcome=Outcome.PASSED, visibility=Visibility.EVERYONE)
    put_run(rich.pk)
    broken = make_run(state=State.FINISHED, outcome=Outcome.ERRORED, detail="it broke", visibility=Visibility.EVERYONE)
    make_run(visibility=Visibility.EVERYONE)
    bench = Bench.objects.create(name="bench-1", health=Health.WELL, seen_at=timezone.now())
    lease = Lease.objects.create(bench=bench, holder=user, ends_at=timezone.now() + timedelta(hours=1))
    return {"run_id": rich.pk, "a": rich.pk, "b": broken.pk, "name": "summary.json", "lease_id": lease.pk}


def own_hook(owner: User) -> dict[str, object]:
    """A webhook of the caller's with a message."""
    hook = Webhook.objects.create(owner=owner, url="http://127.0.0.1:9/", secret="s", events=["run.finished"])
    return {"hook_id": hook.pk, "delivery_id": hook_ping(hook=hook).pk}


@pytest.mark.soak
@pytest.mark.timeout(3600)  # five seeds take minutes each
@pytest.mark.parametrize(
    ("who", "ids"), [("runner", "known"), ("runner", "random"), ("admin", "known"), ("stranger", "random")]
)
def test_the_api_is_as_it_is_described(
    who: str,
    ids: str,
    served: str,
    known: dict[str, object],
    make_user: Callable[..., User],
    tmp_path: Path,
    soak: bool,
    soak_note: Callable[[str], None],
) -> None:
    if not soak and (who, ids) == ("runner", "random"):
        pytest.skip("only with --soak: random ids are also what strangers try")
    words = ["run", f"{served}/api/v1/openapi.json", "--checks", "all", "--continue-on-failure", "--no-color"]
    words += ["--generation-database", "none", "--request-timeout", "20"]
    if who != "stranger":
        caller = make_user("fuzz", role=who)
        Quota.objects.create(user=caller, queued_runs=1_000_000)
        words += ["--header", f"Authorization: Bearer {accounts.token_create(user=caller, name='fuzz')[1]}"]
        known |= own_hook(caller)
    pinned = "".join(f'"path.{name}" = {json.dumps(value)}\n' for name, value in known.items())
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG + (pinned if ids == "known" else ""))
    words += ["--max-examples", "15"] if soak else ["--max-examples", "2", "--phases", "examples,fuzzing"]
    cases = []
    for seed in SEEDS if soak else SEEDS[:1]:
        told = schemathesis("--config-file", str(config), *words, "--seed", str(seed))
        # Without this a bad token would make everything pass: each answer would be a well-described 401.
        assert (who == "stranger") == ("401 Unauthorized" in told), told[-5000:]
        found = re.search(r"(\d+) generated", told)
        assert found, told
        cases.append(int(found[1]))
    soak_note(f"schemathesis as {who}, {ids} ids: {len(cases)} seeds, cases {cases}, findings 0")


def schemathesis(*words: str) -> str:
    """What it printed; anything that it found fails the test."""
    program = Path(sys.executable).with_name("schemathesis")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    return done.stdout
