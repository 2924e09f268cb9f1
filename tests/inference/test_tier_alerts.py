"""What goes wrong below the pool stands among the alerts of the pool's report, as long as it lasts."""

from __future__ import annotations

import errno

import pytest

from pagoda_inference.kv.tiers import faults


async def test_a_disk_tier_that_cannot_be_had_is_an_alert(start_engine, socket_folder):
    (socket_folder / "file").write_text("no folder")
    engine = await start_engine(disk_gib=0.001, tier_folder=socket_folder / "file" / "kv")
    await engine.client()
    report = await engine.report()
    assert report.tier_totals["disk"] == 0
    assert ["disk_tier_off" in alert for alert in report.alerts] == [True]


async def test_tiers_in_order_are_none(start_engine, socket_folder):
    engine = await start_engine(disk_gib=0.001, tier_folder=socket_folder / "kv")
    await engine.client()
    assert (await engine.report()).alerts == ()


def test_a_copy_that_fails_is_an_alert_until_none_has_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    now = [1000.0]
    monkeypatch.setattr(faults.time, "monotonic", lambda: now[0])
    found = faults.Faults()
    assert found.alerts() == ()
    for _ in range(3):
        found.copy_failed(OSError(errno.ENOSPC, "No space left on device"))
        now[0] += 10
    assert [record.message for record in caplog.records if record.name.startswith("pagoda")] == ["tier_copy_failed"]
    assert ["(No space left on device)" in alert for alert in found.alerts()] == [True]
    now[0] += faults.ALERT_S
    assert found.alerts() == ()
