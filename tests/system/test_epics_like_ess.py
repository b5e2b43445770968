"""Messages made of PVs beside those that the ESS forwarder makes of the same updates: `docs/reference/epics.md` lists all
differences, with reasons.
"""

import fnmatch
import json
import re
import time

import numpy as np
import pytest
from conftest import ROOT, until

beamport = pytest.importorskip("beamport", reason="pip install .")
pytest.importorskip("pvxslibs", reason="EPICS has no wheels for this machine")

import epics_updates  # noqa: E402
import streaming_data_types as ess  # noqa: E402
from epics_servers import environment, image, ioc  # noqa: E402
from p4p.client.thread import Context  # noqa: E402
from p4p.server import Server  # noqa: E402
from p4p.server.thread import SharedPV  # noqa: E402
from streaming_data_types.fbschemas.logdata_f142 import LogData  # noqa: E402
from streaming_data_types.fbschemas.logdata_f142.AlarmSeverity import AlarmSeverity  # noqa: E402
from streaming_data_types.fbschemas.logdata_f142.AlarmStatus import AlarmStatus  # noqa: E402
from streaming_data_types.fbschemas.logdata_f142.Value import Value as F142Value  # noqa: E402
from streaming_data_types.fbschemas.logdata_f144 import f144_LogData  # noqa: E402
from streaming_data_types.fbschemas.logdata_f144.Value import Value as F144Value  # noqa: E402
from streaming_data_types.fbschemas.sample_environment_senv.SampleEnvironmentData import (  # noqa: E402
    SampleEnvironmentData as Senv,
)

# ess-streaming-data-types is older than numpy 2.
np.unicode_, np.string_ = np.str_, np.bytes_
PAGE = ROOT / "docs" / "reference" / "epics.md"


def word(enum, number: int) -> str:
    """The name of a number of an enum of FlatBuffers."""
    return next(name for name, value in vars(enum).items() if value == number and not name.startswith("_"))


def moment(time_ns: int, at: int) -> str:
    """A time, beside that of the update."""
    after = int(time_ns) - at
    return "exact" if after == 0 else "rounded" if abs(after) < 1000 else f"{after} ns later"


def fields(message: bytes, at: int, number: int | None = None) -> dict[str, str]:
    """The fields of a message: its times beside that of its update, its counter beside its `number` in the stream."""

    def counter(count: int) -> str:
        return "number of the message" if count == number else str(count)

    schema = message[4:8]
    m = ess.DESERIALISERS[schema.decode()](message)
    if schema == b"f144":
        kind = word(F144Value, f144_LogData.f144_LogData.GetRootAsf144_LogData(message, 0).ValueType())
        value = m.value.tolist() if hasattr(m.value, "tolist") else m.value
        return {"name": m.source_name, "type": kind, "value": str(value), "time": moment(m.timestamp_unix_ns, at)}
    if schema == b"f142":
        kind = word(F142Value, LogData.LogData.GetRootAsLogData(message, 0).ValueType())
        value = m.value.tolist() if hasattr(m.value, "tolist") else m.value
        alarm = {"status": word(AlarmStatus, m.alarm_status), "severity": word(AlarmSeverity, m.alarm_severity)}
        found = {"name": m.source_name, "type": kind, "value": str(value), "time": moment(m.timestamp_unix_ns, at)}
        return found | alarm
    if schema == b"al00":
        found = {"name": m.source, "time": moment(m.timestamp_ns, at)}
        return found | {"severity": m.severity.name, "message": m.message}
    if schema == b"tdct":
        # Values are whole steps of 10 us, or less than one; what is just below them was rounded.
        after = [int(one) - at for one in m.timestamps]
        precision = "rounded" if any(-2000 < one < 0 for one in after) else "exact"
        found = {"name": m.name, "timestamps": str([round(one, -4) for one in after]), "time": precision}
        return found | {"sequence_counter": counter(m.sequence_counter)}
    time_ns = (
        m.timestamp_unix_ns if schema == b"se00" else Senv.GetRootAsSampleEnvironmentData(message, 0).PacketTimestamp()
    )
    found = {"name": m.name, "channel": str(m.channel), "time": moment(time_ns, at), "location": str(m.ts_location)}
    found |= {"values": f"{m.values.dtype} {m.values.tolist()}", "time_delta": str(float(m.sample_ts_delta))}
    found |= {"timestamps": str([int(one) - at for one in m.value_ts])}
    return found | {"message_counter": counter(m.message_counter)}


def described(message) -> dict[str, str]:
    """A message: the arguments of `fields`; or none, or the name of an error."""
    return {"message": "sent"} | fields(*message) if isinstance(message, tuple) else {"message": "none"}


def differences(theirs: dict, ours: dict) -> dict[tuple[str, ...], list[str]]:
    """Names of the PVs by schema, field, what the ESS forwarder has there, and what we have."""
    found = {}
    for name, messages in theirs.items():
        for schema in messages:
            one, other = described(messages[schema]), described(ours.get((name, schema)))
            for field in one.keys() & other.keys():
                if one[field] != other[field]:
                    found.setdefault((schema, field, one[field], other[field]), []).append(name)
    return found


def listed(theirs: dict) -> dict[tuple[str, ...], list[str]]:
    """The same from the page, on which PVs are patterns, and each row has a reason."""
    table = PAGE.read_text().split("## Beside the ESS forwarder\n")[1].split("\n## ")[0]
    found = {}
    for line in re.findall(r"^\| `.*", table, re.MULTILINE):
        *row, reason = [cell.strip() for cell in line.strip("|").split("|")]
        patterns, *row = [cell.strip("`") for cell in row]
        schema, field = row[:2]
        assert reason and tuple(row) not in found, line
        known = [name for name in theirs if field == "message" or isinstance(theirs[name].get(schema), tuple)]
        matching = [fnmatch.filter([n for n in known if schema in theirs[n]], pattern) for pattern in patterns.split()]
        assert all(matching), line
        found[tuple(row)] = sorted({name for names in matching for name in names})
    return found


def recorded() -> dict[str, dict[str, tuple[bytes, int] | str | None]]:
    """What the ESS forwarder makes."""
    text = json.loads(epics_updates.RECORDED.read_text())

    def message(name: str, known: str | None):
        # The name of an error has letters that are no digits.
        is_bytes = known is not None and re.fullmatch("[0-9a-f]+", known)
        return (bytes.fromhex(known), text["at"][name]) if is_bytes else known

    return {name: {s: message(name, m) for s, m in known.items()} for name, known in text["messages"].items()}


def test_messages_are_those_of_the_ess_forwarder_but_for_a_list(lab, network):
    theirs = recorded()
    at = {name: time.time_ns() // 10**9 * 10**9 - 60 * 10**9 + 123_456_789 for name in theirs}
    served = epics_updates.structures(at["ENUM"])
    assert theirs.keys() == served.keys() | epics_updates.RECORDS.keys()
    database = lab.folder / "records.db"
    database.write_text(epics_updates.DATABASE)
    rows = ", ".join(
        f'{{ pv = "{name if name in served else f"ca:{name}"}", schema = "{schema}" }}'
        for name, messages in theirs.items()
        for schema in messages
        if schema != "al00"
    )
    lab.write(f'[source.pvs]\nkind = "pva"\nconnections = false\nunits = false\npvs = [{rows}]\n')
    wanted = {
        (name, schema) for name, messages in theirs.items() for schema, m in messages.items() if isinstance(m, tuple)
    }
    for (schema, field, one, other), names in listed(theirs).items():
        if field == "message":
            change = wanted.union if other == "sent" else wanted.difference
            wanted = change((name, schema) for name in names)
            assert {one, other} == {"sent", "none"}
    pvs = {name: SharedPV(initial=value) for name, (value, _) in served.items()}
    # Of the IOC beamport knows the ports of Channel Access alone: those of pvAccess are the other server's.
    beside = environment() | {name: value for name, value in network.items() if "_CA" in name}
    with (
        ioc(database, beside),
        Server(providers=[pvs], conf=network, useenv=False),
        Context("pva", conf=beside, useenv=False, nt=False) as context,
    ):
        for name in epics_updates.RECORDS:
            stamp = context.get(name).timeStamp
            at[name] = stamp.secondsPastEpoch * 10**9 + stamp.nanoseconds
        process, _ = lab.up_ready()

        def ours() -> dict:
            found = {}
            for m in beamport.open(lab.data)["pvs"].read(early=True):
                found.setdefault((m.origin, m.schema), (bytes(m.payload), at[m.origin], m.origin_seq))
            return found

        until(lambda: wanted <= ours().keys(), lambda: f"missing {sorted(wanted - ours().keys())}")
        found = differences(theirs, ours())
        lab.interrupt(process)
        lab.end(process)
    found = {row: sorted(names) for row, names in found.items()}
    print("\n".join(f"| `{' '.join(found[row])}` | `{'` | `'.join(row)}` | |" for row in sorted(found)))
    assert found == listed(theirs)


def test_attributes_of_frames_are_read_by_ess(lab, network):
    frame = image(np.arange(6, dtype="u2"), [3, 2], "", 77, int(time.time()))
    lab.write('[source.pvs]\nkind = "pva"\npvs = ["IMAGE"]\n')
    with Server(providers=[{"IMAGE": SharedPV(initial=frame)}], conf=network, useenv=False):
        process, _ = lab.up_ready()
        read = beamport.open(lab.data)["pvs"].read
        (message,) = until(lambda: list(read(schema="ad00", early=True)), "no frame came")
        lab.interrupt(process)
        lab.end(process)
    found = ess.deserialise_ad00(bytes(message.payload))
    assert found.data.tolist() == [[0, 1, 2], [3, 4, 5]] and found.unique_id == 77
    # The last has neither description nor source.
    texts = [(one.name, one.description, one.source) for one in found.attributes]
    assert texts == [("gain", "of the amplifier", "CAM:GAIN"), ("mode", "", ""), ("dataTimeStamp", "", "")]
