"""Updates of PVs of every type, of which the messages of the ESS forwarder are recorded in `vectors/ess/forwarder.json`.

`python epics_updates.py FORWARDER` records them again: FORWARDER is a checkout of github.com/ess-dmsc/forwarder, and this
Python has what that needs (numpy 1, caproto, p4p, ess-streaming-data-types). What is recorded now was made by converters
written after those of several commits of the forwarder (758db70 for f144, bcb6dca and later for f142, 3a4c98b for al00,
32d6cc9 for tdct, 1f81ff0 for se00, caf0e51 for senv), not by a checkout.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

from p4p import Value
from p4p.nt import NTEnum, NTScalar, NTTable

RECORDED = Path(__file__).resolve().parent / "vectors/ess/forwarder.json"
SECOND = 1_000_000_000

# By Channel Access; `.PREC` is a DBR_SHORT.
DATABASE = """
record(ai, "R:AI") { field(VAL, "1.5") field(PINI, "YES") field(EGU, "K") field(HIGH, "1") field(HSV, "MINOR") }
record(ai, "R:CALM") { field(VAL, "0.5") field(PINI, "YES") field(PREC, "3") }
record(longin, "R:LONG") { field(VAL, "-7") field(PINI, "YES") field(LOLO, "-5") field(LLSV, "MAJOR") }
record(bi, "R:BI") { field(VAL, "1") field(ZNAM, "off") field(ONAM, "on") field(PINI, "YES") }
record(mbbi, "R:MBBI") { field(VAL, "2") field(TWST, "two") field(PINI, "YES") field(TWSV, "INVALID") }
record(stringin, "R:TEXT") { field(VAL, "word") field(PINI, "YES") }
record(waveform, "R:SHORT") { field(FTVL, "SHORT") field(NELM, "3") field(INP, [1, 2, 3]) field(PINI, "YES") }
record(waveform, "R:INT") { field(FTVL, "LONG") field(NELM, "3") field(INP, [1, 2, 3]) field(PINI, "YES") }
record(waveform, "R:FLOAT") { field(FTVL, "FLOAT") field(NELM, "3") field(INP, [1, 2, 3]) field(PINI, "YES") }
record(waveform, "R:DOUBLE") { field(FTVL, "DOUBLE") field(NELM, "3") field(INP, [1, 2, 3]) field(PINI, "YES") }
record(waveform, "R:UCHAR") { field(FTVL, "UCHAR") field(NELM, "3") field(INP, [1, 2, 3]) field(PINI, "YES") }
record(waveform, "R:TEXTS") { field(FTVL, "STRING") field(NELM, "2") field(INP, ["a", "bc"]) field(PINI, "YES") }
record(waveform, "R:ONE") { field(FTVL, "DOUBLE") field(NELM, "1") field(INP, [1.5]) field(PINI, "YES") }
"""
LOGS = ["f144", "f142"]
RECORDS = {
    "R:AI": [*LOGS, "al00"],
    "R:CALM": [*LOGS, "al00"],
    "R:CALM.PREC": LOGS,
    "R:LONG": [*LOGS, "al00"],
    "R:BI": LOGS,
    "R:MBBI": [*LOGS, "al00"],
    "R:TEXT": LOGS,
    "R:SHORT": [*LOGS, "tdct"],
    "R:INT": [*LOGS, "tdct"],
    "R:FLOAT": LOGS,
    "R:DOUBLE": [*LOGS, "tdct"],
    "R:UCHAR": LOGS,
    "R:TEXTS": LOGS,
    "R:ONE": [*LOGS, "tdct"],
}


def structures(at: int) -> dict[str, tuple[Value, list[str]]]:
    """PVs of pvAccess at a time, ns: their only update, and the schemas that it is converted to."""
    stamp = {"secondsPastEpoch": at // SECOND, "nanoseconds": at % SECOND}
    scalars = {"?": True, "b": -5, "B": 250, "h": -3000, "H": 60000, "i": -70000, "I": 4000000000, "l": -(2**40)}
    scalars |= {"L": 2**63 + 1, "f": 0.5, "d": 1e-300, "s": "word"}
    found = {}

    def add(name: str, kind, value, schemas: list[str], **alarm):
        built = kind.wrap(value)
        built["timeStamp"] = stamp
        if alarm:
            built["alarm"] = alarm
        found[name] = (built, schemas)

    for code, value in scalars.items():
        more = ["tdct"] if code in "il" else []
        add(f"S:{code}", NTScalar(code), value, LOGS + more)
        add(f"A:{code}", NTScalar(f"a{code}"), [value, value], LOGS + (["tdct"] if code in "ild" else []))
    add("ONE:d", NTScalar("ad"), [1.5], [*LOGS, "tdct"])
    add("NONE:d", NTScalar("ad"), [], ["tdct"])
    add("ENUM", NTEnum(), {"index": 1, "choices": ["off", "on"]}, LOGS)
    texts = {"HIGH": 1, "HIGH_ALARM": 1, "TIMEOUT": 3, "TIMED_ALARM": 3, "too hot": 2, "NO_ALARM": 0, "": 0}
    for text, severity in texts.items():
        name = f"ALARM:{text.replace(' ', '_')}"
        add(name, NTScalar("d"), 1.0, ["f142", "al00"], severity=severity, status=1 if severity else 0, message=text)
    for code, column in {"d": [1.5, -2.5, 0.4], "i": [1, -2, 3], "L": [1, 2, 3]}.items():
        rows = [{"value": value, "timestamp": at + 1000 * n} for n, value in enumerate(column)]
        table = NTTable([("value", code), ("timestamp", "L")])
        add(f"TABLE:{code}", table, rows, ["se00", "senv"])
    add("ROW", NTTable([("value", "i"), ("timestamp", "l")]), [{"value": 5, "timestamp": at}], ["se00", "senv"])
    add("WORDS", NTTable([("value", "i"), ("word", "s")]), [{"value": 5, "word": "a"}], ["se00", "senv"])
    return found


def record(forwarder: Path) -> dict:
    """What the forwarder makes of all updates: `messages` in hex, or the name of its error."""
    import caproto
    import caproto.sync.client
    from epics_servers import environment, ioc
    from p4p.client.thread import Context

    sys.path.insert(0, str(forwarder))

    def convert(schema: str, protocol: str, name: str, update) -> str | None:
        word = f"nttable_{schema}" if schema in ("se00", "senv") else schema
        module = importlib.import_module(f"forwarder.update_handlers.{word}_serialiser")
        try:
            converter = getattr(module, f"{word}_{protocol}Serialiser")(name)
            message = converter.serialise(update)[0]
        except Exception as error:
            return type(error).__name__
        return None if message is None else message.hex()

    at = 1_700_000_000_123_456_789
    recorded = {"at": {}, "messages": {}}
    for name, (update, schemas) in structures(at).items():
        recorded["at"][name] = at
        recorded["messages"][name] = {schema: convert(schema, "PVA", name, update) for schema in schemas}
    settings = environment()
    database = Path(sys.argv[0]).with_suffix(".db.tmp")
    database.write_text(DATABASE)
    os.environ |= settings
    with ioc(database, settings), Context("pva", conf=settings, useenv=False, nt=False) as context:
        for name, schemas in RECORDS.items():
            stamp = context.get(name).timeStamp
            recorded["at"][name] = stamp.secondsPastEpoch * SECOND + stamp.nanoseconds
            update = caproto.sync.client.read(name, data_type="time", repeater=False)
            recorded["messages"][name] = {schema: convert(schema, "CA", name, update) for schema in schemas}
    database.unlink()
    return recorded


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(Path(sys.argv[1])), indent=1) + "\n")
