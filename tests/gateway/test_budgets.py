"""Limits by the wall clock, and budgets of a calendar day, which a restart does not give twice."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gateway import budgets
from gateway.budgets import BudgetKeeper, KeptDay, kept_budgets
from gateway.quota.tenant import TenantQuota
from gateway.quotas import Quotas, retry_after
from gateway.refusals import Refused
from gateway.view import compile_view
from tests.disks import mounted
from tests.gateway.fleet import RunningGateway, ScriptedEngine, changed, chat, configuration, running_gateway, usage
from wire.files import write_private
from wire.snapshot import GatewaySnapshot, ScheduledLimits, TemporaryLimits, Tenant

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Thursday, 1 January 1970: a clock that shows hours as whole numbers.
OFFICE = ScheduledLimits(1, 9 * 60, 18 * 60, tpm_limit=900, max_parallel_requests=1)


class Clock:
    """Both clocks of a gateway, moved by hand."""

    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def quotas_of(clock: Clock, tenant: Tenant, kept: dict[str, KeptDay] | None = None, live_gateways: int = 1) -> Quotas:
    quotas = Quotas(now_ms=clock, unix_ms=clock, lease_ms=60_000, kept=kept)
    configure(quotas, tenant, live_gateways)
    return quotas


def configure(quotas: Quotas, tenant: Tenant, live_gateways: int = 1) -> None:
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant}), 1), live_gateways)


def limit_of(quotas: Quotas) -> int:
    return int(dict(quotas.headers("t"))[b"x-ratelimit-limit-tokens"])


def refused(quotas: Quotas, tokens: int, sequences: int = 1) -> Refused:
    with pytest.raises(Refused) as caught:
        quotas.take("t", tokens, sequences)
    return caught.value


def test_limits_change_with_the_hour_while_nothing_is_published():
    clock = Clock()
    quotas = quotas_of(clock, Tenant(tpm_limit=100, schedule={"office": OFFICE}), live_gateways=2)
    assert limit_of(quotas) == 50
    clock.ms = 9 * HOUR_MS - 1
    assert refused(quotas, 60).reason == "never_fits"
    clock.ms = 9 * HOUR_MS
    lease = quotas.take("t", 60, 1)
    assert limit_of(quotas) == 450
    assert refused(quotas, 1).reason == "max_parallel_requests"
    lease.settle(60, reached_engine=True)
    clock.ms = 18 * HOUR_MS
    assert limit_of(quotas) == 50
    quotas.take("t", 1, 3)
    clock.ms = 10 * HOUR_MS
    assert limit_of(quotas) == 450, "the clock was set back into the hours"


def test_what_a_person_gave_ends_by_itself():
    clock = Clock()
    quotas = quotas_of(clock, Tenant(tpm_limit=100, temporary=TemporaryLimits("o", "r", 1000, tpm_limit=500)))
    assert limit_of(quotas) == 500
    clock.ms = 1000
    assert limit_of(quotas) == 100


def test_a_bucket_that_is_used_up_is_not_filled_by_a_change_of_limits_and_back():
    clock = Clock()
    quotas = quotas_of(clock, Tenant(tpm_limit=100, temporary=TemporaryLimits("o", "r", 1, tpm_limit=60)))
    quotas.take("t", 60, 1).settle(60, reached_engine=True)
    clock.ms = 1
    assert dict(quotas.headers("t"))[b"x-ratelimit-remaining-tokens"] == b"40"


def test_a_budget_is_of_the_tenants_day_and_its_refusal_says_when_that_ends():
    clock = Clock()
    tenant = Tenant(daily_token_budget=100, time_zone="Asia/Kolkata")
    quotas = quotas_of(clock, tenant)
    quotas.take("t", 90, 1).settle(70, reached_engine=True)
    refusal = refused(quotas, 31)
    assert refusal.reason == "daily_token_budget"
    assert "30 of the day's 100 tokens are left" in refusal.message
    assert "1970-01-01T18:30:00Z (midnight in Asia/Kolkata)" in refusal.message
    assert refusal.retry_after_seconds == 18.5 * 3600
    assert refusal.numbers == {"asked": 31, "left": 30, "limit": 100}
    assert refused(quotas, 101).reason == "never_fits"
    clock.ms = 18 * HOUR_MS + HOUR_MS // 2
    quotas.take("t", 100, 1)


def test_the_used_part_of_a_day_is_told_of_whom_has_a_budget_and_has_asked():
    clock = Clock()
    quotas = quotas_of(clock, Tenant(daily_token_budget=100))
    assert quotas.moment().days == {}
    quotas.take("t", 40, 1)
    assert quotas.moment().days == {"t": 0.4}
    configure(quotas, Tenant(daily_token_budget=50))
    quotas.take("t", 10, 1)
    assert quotas.moment().days == {"t": 1.0}
    clock.ms += 86_400_000
    assert quotas.moment().days == {"t": 0.0}, "a new day has begun"
    configure(quotas, Tenant())
    quotas.take("t", 10, 1)
    assert quotas.moment().days == {}


def test_of_a_share_of_the_budget_the_used_part_is_told():
    quotas = quotas_of(Clock(), Tenant(daily_token_budget=100), live_gateways=4)
    quotas.take("t", 20, 1)
    assert quotas.moment().days == {"t": 0.8}


def test_a_share_of_the_budget_is_a_gateways_and_bounds_the_default_output():
    quotas = quotas_of(Clock(), Tenant(daily_token_budget=100, tpm_limit=10_000), live_gateways=4)
    assert quotas.largest_tokens("t") == 25
    assert refused(quotas, 26).reason == "never_fits"


def test_a_request_that_another_limit_refuses_takes_nothing_of_the_day():
    quotas = quotas_of(Clock(), Tenant(daily_token_budget=100, max_parallel_requests=1))
    lease = quotas.take("t", 10, 1)
    assert refused(quotas, 90).reason == "max_parallel_requests"
    lease.settle(0, reached_engine=False)
    quotas.take("t", 100, 1)


def test_a_budget_that_is_changed_keeps_what_was_used_of_the_day():
    quotas = quotas_of(Clock(), Tenant(daily_token_budget=100))
    quotas.take("t", 60, 1).settle(60, reached_engine=True)
    configure(quotas, Tenant(daily_token_budget=50))
    assert refused(quotas, 1).message.startswith("1 token is asked for (largest output included) and 0 of the day's 50")
    configure(quotas, Tenant())
    quotas.take("t", 10, 1).settle(10, reached_engine=True)
    configure(quotas, Tenant(daily_token_budget=80, time_zone="Europe/Istanbul"))
    assert refused(quotas, 11).numbers["left"] == 10


def test_what_was_kept_counts_on_the_same_day_alone():
    kept = {"t": KeptDay(0, DAY_MS, 95)}
    clock = Clock()
    quotas = quotas_of(clock, Tenant(daily_token_budget=100), kept)
    assert refused(quotas, 6).reason == "daily_token_budget"
    assert quotas.changed_days() is None
    quotas.take("t", 2, 1)
    assert quotas.changed_days() == {"t": KeptDay(0, DAY_MS, 97)}
    assert quotas.changed_days() is None
    clock.ms = DAY_MS
    quotas_of(clock, Tenant(daily_token_budget=100), kept).take("t", 100, 1)


def test_what_was_kept_of_tenants_that_have_not_asked_since_is_kept_on():
    kept = {"quiet": KeptDay(0, DAY_MS, 95), "gone": KeptDay(0, DAY_MS, 1), "t": KeptDay(0, DAY_MS, 3)}
    clock, tenant = Clock(), Tenant(daily_token_budget=100)
    quotas = Quotas(now_ms=clock, unix_ms=clock, lease_ms=60_000, kept=kept)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants={"t": tenant, "quiet": tenant}), 1), 1)
    quotas.take("t", 5, 1)
    assert quotas.changed_days() == {"quiet": KeptDay(0, DAY_MS, 95), "t": KeptDay(0, DAY_MS, 8)}


def test_only_days_that_changed_are_worked_out_again(monkeypatch: pytest.MonkeyPatch):
    """The keeper asks every second, and there may be thousands of tenants."""
    tenants = {name: Tenant(daily_token_budget=100) for name in ("quiet", "busy")}
    clock = Clock()
    quotas = Quotas(now_ms=clock, unix_ms=clock, lease_ms=60_000)
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants=tenants), 1), 2)
    for name in tenants:
        quotas.take(name, 5, 1)
    assert quotas.changed_days() == dict.fromkeys(tenants, KeptDay(0, DAY_MS, 5))
    worked_out: list[str] = []
    kept_day = TenantQuota.kept_day

    def counted(quota: TenantQuota) -> KeptDay | None:
        worked_out.append(quota.name)
        return kept_day(quota)

    monkeypatch.setattr(TenantQuota, "kept_day", counted)
    quotas.take("busy", 1, 1).settle(1, reached_engine=True)
    assert quotas.changed_days() == {"quiet": KeptDay(0, DAY_MS, 5), "busy": KeptDay(0, DAY_MS, 6)}
    assert worked_out == ["busy"]
    quotas.configure(compile_view(GatewaySnapshot(schema=1, tenants=tenants), 2), 1)
    quotas.changed_days()
    assert sorted(worked_out[1:]) == ["busy", "quiet"], "another number of gateways gives it another part"


def test_a_tenant_that_is_removed_and_made_anew_begins_anew():
    quotas = quotas_of(Clock(), Tenant(daily_token_budget=100, max_parallel_requests=1))
    lease = quotas.take("t", 100, 1)
    quotas.configure(compile_view(GatewaySnapshot(schema=1), 2), 1)
    assert refused(quotas, 1).reason == "unknown_key"
    configure(quotas, Tenant(daily_token_budget=100, max_parallel_requests=1))
    quotas.take("t", 60, 1)
    lease.settle(100, reached_engine=True)
    assert refused(quotas, 50, 0).numbers["left"] == 40


def test_a_wait_of_hours_is_moved_up_by_a_minute_at_most():
    answers = {retry_after(36_000) for _ in range(500)}
    assert min(answers) >= 36_000
    assert max(answers) <= 36_060
    assert len(answers) > 5


async def test_the_keeper_writes_what_changed_and_once_more_at_the_end(tmp_path: Path):
    waiting: list[dict[str, KeptDay]] = [{"a": KeptDay(0, 1, 5)}]
    keeper = BudgetKeeper(tmp_path, lambda: waiting.pop() if waiting else None, interval_seconds=0.01)
    await _until(lambda: kept_budgets(tmp_path) == {"a": KeptDay(0, 1, 5)})
    waiting.append({"a": KeptDay(0, 1, 6)})
    await keeper.end()
    assert kept_budgets(tmp_path) == {"a": KeptDay(0, 1, 6)}


async def test_what_is_used_while_the_keeper_writes_is_kept_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    waiting: list[dict[str, KeptDay]] = [{"a": KeptDay(0, 1, 6)}, {"a": KeptDay(0, 1, 5)}]
    writing, go_on = threading.Event(), threading.Event()

    def write_slowly(path: Path, data: bytes) -> None:
        writing.set()
        assert go_on.wait(10)
        write_private(path, data)

    monkeypatch.setattr(budgets, "write_private", write_slowly)
    keeper = BudgetKeeper(tmp_path, lambda: waiting.pop() if waiting else None, interval_seconds=0.01)
    await _until(writing.is_set)
    ending = asyncio.create_task(keeper.end())
    await asyncio.sleep(0)
    go_on.set()
    await ending
    assert kept_budgets(tmp_path) == {"a": KeptDay(0, 1, 6)}


async def test_what_could_not_be_written_is_written_later(tmp_path: Path):
    waiting: list[dict[str, KeptDay]] = [{"a": KeptDay(0, 1, 5)}]
    state_dir = tmp_path / "state"
    state_dir.write_text("a file where the folder should be")
    keeper = BudgetKeeper(state_dir, lambda: waiting.pop() if waiting else None, interval_seconds=0.01)
    await _until(lambda: not waiting)
    state_dir.unlink()
    await keeper.end()
    assert kept_budgets(state_dir) == {"a": KeptDay(0, 1, 5)}


async def test_on_a_full_disk_what_was_kept_stays_until_there_is_room(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    days = {f"tenant-{number}": KeptDay(0, 1, number) for number in range(1000)}
    waiting = [{"a": KeptDay(0, 1, 5)}]
    with mounted(tmp_path / "state", "size=128k") as state_dir:
        keeper = BudgetKeeper(state_dir, lambda: waiting.pop() if waiting else None, interval_seconds=0.01)
        await _until(lambda: bool(kept_budgets(state_dir)))
        filler = state_dir / "filler"
        filler.write_bytes(bytes(100 * 1024))
        waiting.append(days)
        await _until(lambda: "not kept on disk" in caplog.text)
        assert kept_budgets(state_dir) == {"a": KeptDay(0, 1, 5)}
        filler.unlink()
        await keeper.end()
        assert kept_budgets(state_dir) == days
        assert {path.name for path in state_dir.iterdir()} == {"budgets.json"}


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"a":{"start_ms":0,"end_ms":1,"taken_tokens":-1}}',
        b'{"a":{"later":' + b"[" * 100_000,
        b" " * 20_000_000,
    ],
    ids=["truncated", "negative", "nested", "long"],
)
def test_a_damaged_file_is_as_none(tmp_path: Path, content: bytes):
    (tmp_path / "budgets.json").write_bytes(content)
    assert kept_budgets(tmp_path) == {}


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def test_a_gateway_goes_back_to_the_own_limits_when_temporary_ones_expire(gateway: RunningGateway):
    expires = int(time.time() * 1000) + 1500
    temporary = {"owner": "o", "reason": "r", "expires_at_ms": expires, "tpm_limit": 5000}
    await gateway.publish(changed(gateway.control.content, tenants__alpha={"tpm_limit": 1000, "temporary": temporary}))
    assert await gateway.remaining_tokens() == 5000

    async def remaining() -> int:
        return await gateway.remaining_tokens()

    await gateway.until(remaining, 1000, "the tenant's own limit")
    assert time.time() * 1000 >= expires


async def test_a_gateway_knows_the_hour_of_the_tenants_zone(gateway: RunningGateway):
    now = datetime.now(UTC)
    minute = now.hour * 60 + now.minute
    # Half a day around now, in a zone that is 14 hours ahead: there it is neither.
    around = {"order": 1, "from_minute": (minute - 180) % 1440, "until_minute": (minute + 180) % 1440, "tpm_limit": 77}
    for zone, expected in (("UTC", 77), ("Pacific/Kiritimati", 1000)):
        tenant = {"tpm_limit": 1000, "time_zone": zone, "schedule": {"around": around}}
        await gateway.publish(changed(gateway.control.content, tenants__alpha=tenant))
        assert await gateway.remaining_tokens() == expected


@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_a_restart_gives_no_second_budget(engine: ScriptedEngine, tmp_path: Path, ending: str):
    # A zone whose midnight is not near.
    zone = "UTC" if 1 <= datetime.now(UTC).hour < 23 else "Pacific/Honolulu"
    content = changed(configuration(engine.url), tenants__alpha={"daily_token_budget": 100, "time_zone": zone})
    fast = {"HEADWORKS_GATEWAY_BUDGET_KEEP_SECONDS": "0.1"}
    engine.usage = usage(60, 31)
    async with running_gateway(tmp_path, content, fast) as gateway:
        assert (await gateway.call(chat(max_tokens=50)))[0] == 200
        if ending == "kill":

            async def kept() -> list[int]:
                return [day.taken_tokens for day in kept_budgets(gateway.state_dir).values()]

            await gateway.until(kept, [91], "the day on disk")
            await asyncio.to_thread(gateway.process.kill)
        else:
            await asyncio.to_thread(gateway.process.stop)
        gateway.launch()
        await gateway.until_ready()
        assert await gateway.refusal(chat(max_tokens=50)) == (429, "daily_token_budget")
        status, document, headers = await gateway.call(chat(max_tokens=50))
        assert f"midnight in {zone}" in json.dumps(document)
        assert status == 429
        assert int(headers["retry-after"]) <= 86_460
        assert (await gateway.call(chat(max_tokens=1)))[0] == 200, "9 tokens are left"
