"""An ophyd-async device whose PVs are read and written by a running beamport instrument.

    axis = Axis(instrument, "LAB:MOT:1.VAL", "LAB:MOT:1.RBV", name="axis")

Each value that Bluesky sets is then in the stream `control` of the instrument, with the answer of the PV. It needs
`pip install ophyd-async`, a running `beamport.Instrument`, and a source that lists the PVs that are monitored.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import beamport
from beamport import epics
from bluesky.protocols import Movable
from ophyd_async.core import (
    AsyncStatus,
    NotConnectedError,
    SignalBackend,
    SignalR,
    SignalRW,
    StandardReadable,
    StandardReadableFormat,
    make_datakey,
)

# A move of an axis.
MOVE_S = 600.0


class BeamportBackend(SignalBackend):
    """A signal of ophyd-async: one PV, or one that is read and one that is written."""

    def __init__(self, instrument: beamport.Instrument, datatype: type, read: str, write: str = "") -> None:
        """`read` and `write`: names of PVs, which may have the prefix `pva:` or `ca:`."""
        super().__init__(datatype)
        self._instrument, self._read, self._write = instrument, read, write or read
        self._updates: Any = None

    def source(self, name: str, read: bool) -> str:
        """Name the PV."""
        return f"beamport://{self._read if read else self._write}"

    async def connect(self, timeout: float) -> None:
        """Read each PV once."""
        for pv in {self._read, self._write}:
            try:
                await self._get(pv, timeout)
            except beamport.Error as error:
                raise NotConnectedError(f"{pv}: {error}") from error

    async def put(self, value: Any) -> None:
        """Write the value, and wait until its record has processed."""
        await asyncio.to_thread(epics.put, self._instrument, self._write, value, timeout=MOVE_S)

    async def get_datakey(self, source: str) -> Any:
        """Say what the value is."""
        found = await self._get(self._read)
        metadata = {"units": found["units"]} if found["units"] else {}
        return make_datakey(self.datatype, self._value(found), source, metadata)

    async def get_reading(self) -> Any:
        """Read the value with its time and its alarm."""
        found = await self._get(self._read)
        seconds = time.time() if found["time"] is None else found["time"] / 1e9
        return {"value": self._value(found), "timestamp": seconds, "alarm_severity": found["severity"]}

    async def get_value(self) -> Any:
        """Read the value."""
        return self._value(await self._get(self._read))

    async def get_setpoint(self) -> Any:
        """Read the value that was set last."""
        return self._value(await self._get(self._write))

    def set_callback(self, callback: Any) -> None:
        """Call a function with each value from now on; `None` ends that."""
        if self._updates is not None:
            self._updates.close()
            self._updates = None
        if callback is None:
            return
        loop = asyncio.get_running_loop()

        def changed(message: beamport.Message) -> None:
            value = self.datatype(message["value"])
            reading = {"value": value, "timestamp": message.source_time / 1e9, "alarm_severity": 0}
            loop.call_soon_threadsafe(callback, reading)

        name = self._read.partition(":")[2] if self._read.startswith(("pva:", "ca:")) else self._read
        self._updates = epics.updates(self._instrument, name, changed)

    async def _get(self, pv: str, timeout: float = 5.0) -> dict[str, Any]:
        return await asyncio.to_thread(epics.get, self._instrument, pv, timeout=timeout, details=True)

    def _value(self, found: dict[str, Any]) -> Any:
        # A text is that of a choice.
        return found.get("text", found["value"]) if self.datatype is str else self.datatype(found["value"])


class Axis(StandardReadable, Movable):
    """A motor: the position to which it moves, and the one where it is."""

    def __init__(self, instrument: beamport.Instrument, setpoint: str, readback: str, name: str = "") -> None:
        """`setpoint` and `readback`: names of PVs."""
        self.setpoint = SignalRW(BeamportBackend(instrument, float, setpoint))
        # Read anew for each event: a cached value may be that of before the move has ended.
        with self.add_children_as_readables(StandardReadableFormat.HINTED_UNCACHED_SIGNAL):
            self.readback = SignalR(BeamportBackend(instrument, float, readback))
        super().__init__(name=name)

    @AsyncStatus.wrap
    async def set(self, value: float) -> None:
        """Move there; done when the motor has arrived."""
        await self.setpoint.set(value, timeout=MOVE_S)
