"""The example of an ophyd-async device: Bluesky reads and writes PVs through a running instrument."""

import asyncio
import importlib
import json

import pytest
from conftest import ROOT, until
from epics_servers import ioc

beamport = pytest.importorskip("beamport", reason="pip install .")

from beamport import epics  # noqa: E402

# A motor that takes half a second.
MOTOR = """
record(calcout, "M:VAL") { field(CALC, "A") field(ODLY, "0.5") field(OUT, "M:RBV PP") field(OOPT, "Every Time") }
record(ao, "M:RBV") { field(VAL, "0") field(PINI, "YES") field(EGU, "mm") }
record(mbbo, "M:MODE") { field(ZRST, "off") field(ONST, "slow") field(PINI, "YES") }
"""


@pytest.fixture
def example(monkeypatch):
    pytest.importorskip("ophyd_async")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("ophyd_device")


def test_bluesky_scans_an_axis_through_the_instrument(tmp_path, network, servers, example):
    from bluesky import RunEngine
    from bluesky.plans import scan
    from ophyd_async.core import NotConnectedError, SignalRW, init_devices

    database = tmp_path / "motor.db"
    database.write_text(MOTOR)
    servers.append(ioc(database, network))
    settings = {
        "instrument": "lab",
        "data": str(tmp_path / "data"),
        "source": {"pvs": {"kind": "pva", "pvs": ["M:RBV"]}},
    }
    with beamport.run(settings) as instrument:
        engine = RunEngine({})
        with init_devices():
            axis = example.Axis(instrument, "M:VAL.A", "M:RBV")
        documents = []
        engine(scan([axis], axis, 1, 3, 3), lambda name, document: documents.append((name, document)))
        events = [document for name, document in documents if name == "event"]
        # Each reading is made when the motor has arrived.
        assert [event["data"]["axis-readback"] for event in events] == [1, 2, 3]
        times = [event["timestamps"]["axis-readback"] for event in events]
        assert times == sorted(times) and times[2] - times[0] > 0.9
        (descriptor,) = (document for name, document in documents if name == "descriptor")
        key = descriptor["data_keys"]["axis-readback"]
        assert (key["source"], key["units"], key["dtype"]) == ("beamport://M:RBV", "mm", "number")
        # What was set is recorded.

        def puts() -> list[tuple]:
            made = [json.loads(one["arguments"]) for one in instrument["control"].read() if one["command"] == "put"]
            return [(one["pv"], one["value"]) for one in made]

        until(lambda: puts() == [("M:VAL.A", 1), ("M:VAL.A", 2), ("M:VAL.A", 3)], puts)

        async def follow() -> None:
            seen = []

            def changed(reading: dict) -> None:
                seen.append(reading["axis-readback"]["value"])

            axis.readback.subscribe_reading(changed)
            await axis.set(7)
            while 7 not in seen:
                await asyncio.sleep(0.01)
            axis.readback.clear_sub(changed)
            mode = SignalRW(example.BeamportBackend(instrument, str, "M:MODE"))
            await mode.connect()
            await mode.set("slow")
            assert await mode.get_value() == "slow"
            nobody = SignalRW(example.BeamportBackend(instrument, float, "NOBODY:HAS:IT"))
            with pytest.raises(NotConnectedError, match="no server has this PV"):
                await nobody.connect(timeout=0.5)

        asyncio.run_coroutine_threadsafe(asyncio.wait_for(follow(), 60), engine.loop).result(90)
        until(lambda: epics.get(instrument, "M:RBV") == 7, "the motor does not arrive")
