"""Makes tests/vectors/wire/*.bin with expected values in *.json, by implementations that are not ours.

    python -m venv VENV && VENV/bin/pip install ess-streaming-data-types numpy
    VENV/bin/python crates/wire/tests/make_vectors.py

The facility's schemas come from ess-streaming-data-types, beamport's own from the official FlatBuffers
runtime, field by field from the table OWN below. The result is committed; run again only to add vectors.
An array is written as {"dtype", "values"}, a da00 array has its "shape" besides.
"""

import json
import math
import pathlib

import flatbuffers
import numpy as np
from flatbuffers import number_types as nt
from streaming_data_types.alarm_al00 import Severity, serialise_al00
from streaming_data_types.area_detector_ad00 import Attribute, serialise_ad00
from streaming_data_types.array_1d_se00 import Location, serialise_se00
from streaming_data_types.dataarray_da00 import Variable, serialise_da00
from streaming_data_types.eventdata_ev44 import serialise_ev44
from streaming_data_types.fbschemas.alarm_al00 import Alarm
from streaming_data_types.fbschemas.area_detector_ad00 import Attribute as AdAttribute
from streaming_data_types.fbschemas.area_detector_ad00 import ad00_ADArray as AdArray
from streaming_data_types.logdata_f144 import serialise_f144
from streaming_data_types.run_start_pl72 import DetectorSpectrumMap, serialise_pl72
from streaming_data_types.run_stop_6s4t import serialise_6s4t

OUT = pathlib.Path(__file__).resolve().parents[3] / "tests" / "vectors" / "wire"
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
T = 1_700_000_000_123_456_789

# beamport's own messages: for each table its fields by id. A list names the table of its entries.
GAP = [
    ("stream", "text"),
    ("origin", "text"),
    ("first", "u64"),
    ("last", "u64"),
    ("from", "i64"),
    ("to", "i64"),
    ("reason", "text"),
    ("by_sequence", "bool"),
]
RUN_STREAM = [
    ("name", "text"),
    ("uuid", "uuid"),
    ("epoch", "u32"),
    ("first", "u64"),
    ("next", "u64"),
    ("clock", "text"),
    ("ended", "bool"),
]
COUNT = [("name", "text"), ("value", "u64")]
INPUT = [
    ("stream", "text"),
    ("uuid", "uuid"),
    ("epoch", "u32"),
    ("first", "u64"),
    ("next", "u64"),
    ("done", "u64"),
    ("counts", COUNT),
]
TASK = [
    ("command", "text"),
    ("number", "u64"),
    ("slot", "u32"),
    ("input", "u32"),
    ("uuid", "uuid"),
    ("epoch", "u32"),
    ("block_first", "u64"),
    ("block_next", "u64"),
    ("first", "u64"),
    ("next", "u64"),
    ("part", "u32"),
    ("parts", "u32"),
    ("arguments", "text"),
]
OWN = {
    "bprn": [
        ("name", "text"),
        ("id", "uuid"),
        ("state", "u8"),
        ("start", "i64"),
        ("stop", "i64"),
        ("settle", "i64"),
        ("time", "i64"),
        ("metadata", "text"),
        ("streams", RUN_STREAM),
        ("reason", "text"),
    ],
    "bpcm": [
        ("stage", "text"),
        ("run", "text"),
        ("block", "u64"),
        ("time", "i64"),
        ("inputs", INPUT),
        ("gaps", GAP),
        ("output_first", "u64"),
        ("output_next", "u64"),
        ("state", "text"),
        ("finished", "bool"),
    ],
    "bpgp": GAP,
    "bpct": [("command", "text"), ("arguments", "text"), ("from", "text"), ("time", "i64"), ("answer", "text")],
    "bpst": [("stage", "text"), ("time", "i64"), ("json", "text")],
    "bpgr": [("first", "u64"), ("count", "u32"), ("missing", "u32s"), ("time", "i64"), ("members", "u64s")],
    "bptk": TASK,
    "bpdn": [
        ("task", {"table": TASK}),
        ("output_first", "u64"),
        ("outputs", "u32s"),
        ("aside", "u32s"),
        ("gaps", GAP),
        ("busy", "u64"),
        ("state", "text"),
        ("kept", "u64s"),
    ],
    "bpas": [
        ("stage", "text"),
        ("reason", "text"),
        ("text", "text"),
        ("stream", "text"),
        ("uuid", "uuid"),
        ("epoch", "u32"),
        ("sequence", "u64"),
        ("kind", "text"),
        ("time", "i64"),
        ("payload", "u8s"),
    ],
}
RUN_STATES = ["open", "settling", "sealed"]
FLAGS = {"u8": nt.Uint8Flags, "u32": nt.Uint32Flags, "u64": nt.Uint64Flags, "i64": nt.Int64Flags, "bool": nt.BoolFlags}


def own_table(builder, spec, values):
    """Builds a table of OWN; a field that is not in `values` is left out. Gives its offset."""
    offsets = {}
    for name, kind in spec:
        if name not in values:
            continue
        value = values[name]
        if kind == "text":
            offsets[name] = builder.CreateString(value)
        elif kind == "uuid":
            offsets[name] = builder.CreateByteVector(bytes.fromhex(value))
        elif kind == "u32s":
            offsets[name] = builder.CreateNumpyVector(np.array(value["values"], np.uint32))
        elif kind == "u64s":
            offsets[name] = builder.CreateNumpyVector(np.array(value["values"], np.uint64))
        elif kind == "u8s":
            offsets[name] = builder.CreateByteVector(bytes(value["values"]))
        elif isinstance(kind, dict):
            offsets[name] = own_table(builder, kind["table"], value)
        elif isinstance(kind, list):
            entries = [own_table(builder, kind, entry) for entry in value]
            builder.StartVector(4, len(entries), 4)
            for entry in reversed(entries):
                builder.PrependUOffsetTRelative(entry)
            offsets[name] = builder.EndVector()
    builder.StartObject(len(spec))
    for field, (name, kind) in enumerate(spec):
        if name in offsets:
            builder.PrependUOffsetTRelativeSlot(field, offsets[name], 0)
        elif name in values:
            value = RUN_STATES.index(values[name]) if name == "state" else values[name]
            if name == "stop" and value is None:
                value = 2**63 - 1
            builder.Prepend(FLAGS[kind], value)
            builder.Slot(field)
    return builder.EndObject()


def own(schema, values):
    builder = flatbuffers.Builder(256)
    builder.Finish(own_table(builder, OWN[schema], values), file_identifier=schema.encode())
    return bytes(builder.Output())


def plain(value):
    """A number as JSON has it: NaN and infinities as text."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "NaN")
    return value


def array(values, dtype=None):
    values = np.asarray(values, dtype)
    return {"dtype": values.dtype.name, "values": [plain(v) for v in values.flatten()]}


def shaped(values):
    return array(values) | {"shape": list(np.shape(values))}


def save(name, data, fields):
    OUT.joinpath(name + ".bin").write_bytes(data)
    schema = data[4:8].decode()
    text = json.dumps({"schema": schema, "fields": fields}, indent=1, allow_nan=False)
    OUT.joinpath(name + ".json").write_text(text + "\n")


def some(dtype):
    """Values of a type, with its extremes."""
    if dtype.startswith("float"):
        return np.array([0.0, -1.5, 0.25, 3.0e10, np.nan, np.inf, -np.inf], dtype)
    limits = np.iinfo(dtype)
    return np.array([0, 1, 2, limits.max, limits.min, 100], dtype)


def ev44():
    def one(name, source, number, times, index, tof, pixels, slack=b""):
        data = serialise_ev44(source, number, times, index, tof, pixels)
        fields = {
            "source_name": source,
            "message_id": number,
            "reference_time": array(times, "int64"),
            "reference_time_index": array(index, "int32"),
            "time_of_flight": array(tof, "int32"),
            "pixel_id": array(pixels, "int32"),
        }
        save(name, data + slack, fields)

    one("ev44", "multiblade", 42, [T, T + 71_428_571], [0, 3], [1, 20, 71_000_000, 5, 6], [1, 32768, 7, 8, 9])
    one("ev44_empty", "multiblade", 0, [T], [0], [], [])
    one("ev44_nothing", "", -1, [], [], [], [])
    one("ev44_monitor", "monitor_1", 2**63 - 1, [-5], [0], [10, 11, 12], [])
    one("ev44_extremes", "Bänk ∞", -(2**63), [2**63 - 1, -(2**63)], [0, 2], [-1, 2**31 - 1, -(2**31)], [0, -1, 5])
    # The ESS event formation unit sends its whole buffer, whatever is in it.
    one("ev44_slack", "bank0", 7, [T], [0], list(range(40)), list(range(100, 140)), bytes(range(1, 100)))


def f144():
    for dtype in DTYPES:
        values = some(dtype)
        for at in (0, 3):
            name = f"f144_{dtype}" + ("_large" if at else "")
            data = serialise_f144("AMOR:SE:TEMP01", values[at], T)
            save(name, data, {"source_name": "AMOR:SE:TEMP01", "timestamp": T, "value": plain(values[at])})
        data = serialise_f144("chopper", values, -T)
        save(f"f144_{dtype}_array", data, {"source_name": "chopper", "timestamp": -T, "value": array(values)})
    empty = np.array([], "float32")
    save("f144_empty_array", serialise_f144("x", empty, 0), {"source_name": "x", "timestamp": 0, "value": array(empty)})


def al00():
    for severity in Severity:
        data = serialise_al00("AMOR:SE:TEMP01", T, severity, "too °hot")
        fields = {"source_name": "AMOR:SE:TEMP01", "timestamp": T, "severity": severity.name, "message": "too °hot"}
        save(f"al00_{severity.name.lower()}", data, fields)
    builder = flatbuffers.Builder(64)
    Alarm.AlarmStart(builder)
    builder.Finish(Alarm.AlarmEnd(builder), file_identifier=b"al00")
    save("al00_absent", bytes(builder.Output()), {"source_name": "", "timestamp": 0, "severity": "OK", "message": ""})


def da00():
    def one(name, source, variables, expected):
        save(name, serialise_da00(source, T, variables), {"source_name": source, "timestamp": T, "data": expected})

    def expect(variable, shape, data):
        given = {"name": variable.name, "unit": variable.unit, "label": variable.label, "source": variable.source}
        return given | {"axes": list(variable.axes), "shape": array(shape, "int64"), "data": data}

    counts = np.arange(6, dtype="float64").reshape(2, 3) + 0.5
    edges = np.array([0.0, 1.5, 3.0, 4.5])
    image = [
        Variable(name="signal", data=counts, axes=["y", "time_of_flight"], unit="counts", label="Monitor"),
        Variable(name="time_of_flight", data=edges, axes=["time_of_flight"], unit="us", source="chopper"),
    ]
    one("da00", "monitor_1", image, [expect(v, np.shape(v.data), shaped(v.data)) for v in image])

    every = [Variable(name=dtype, data=some(dtype), axes=["x"], unit="") for dtype in DTYPES]
    one("da00_types", "all", every, [expect(v, v.data.shape, shaped(v.data)) for v in every])

    # Plain numbers and text: the library says how many bytes there are where the shape belongs.
    odd = [Variable(name="real", data=1.5), Variable(name="whole", data=-3), Variable(name="text", data="grüezi")]
    expected = [
        expect(odd[0], [8], {"dtype": "float64", "shape": [1], "values": [1.5]}),
        expect(odd[1], [8], {"dtype": "int64", "shape": [1], "values": [-3]}),
        expect(odd[2], [7], "grüezi"),
    ]
    one("da00_scalars", "odd", odd, expected)

    none = [Variable(name="signal", data=np.zeros((0, 4), "int32"), axes=["x", "y"], unit="counts")]
    one("da00_empty", "none", none, [expect(none[0], [0, 4], shaped(none[0].data))])


def ad00():
    def attribute(given):
        data = given.data
        expected = data if isinstance(data, str) else array(data)
        return {"name": given.name, "description": given.description, "source": given.source, "data": expected}

    def one(name, source, number, data, attributes=()):
        made = serialise_ad00(source, number, T, data, list(attributes))
        fields = {
            "source_name": source,
            "id": number,
            "timestamp": T,
            "dimensions": array([len(data.encode())] if isinstance(data, str) else np.shape(data), "int64"),
            "data": data if isinstance(data, str) else shaped(data),
            "attributes": [attribute(given) for given in attributes],
        }
        save(name, made, fields)

    for dtype in DTYPES:
        one(f"ad00_{dtype}", "13SIM1:image", 7, np.resize(some(dtype), (2, 5)))
    one("ad00_text", "13SIM1:text", 0, "grüezi")

    # Layouts: a spectrum, colours, a stack of stacks, one pixel without axes, no pixel at all; ids to the ends.
    one("ad00_1d", "spectrum", 2**31 - 1, np.arange(9, dtype="uint16"))
    one("ad00_rgb", "colour", -(2**31), np.arange(24, dtype="uint8").reshape(2, 4, 3))
    one("ad00_4d", "stack", -1, np.arange(24, dtype="float32").reshape(2, 3, 1, 4))
    one("ad00_pixel", "", 1, np.array(2.5))
    one("ad00_empty", "none", 1, np.zeros((0, 4), "int32"))
    # Not in C order in memory, and larger than what starts on 64 bytes in a stream.
    one("ad00_large", "camera", 3, np.asfortranarray(np.arange(600, dtype="uint16").reshape(20, 30)))

    every = [Attribute(dtype, f"some {dtype}", "driver", some(dtype)) for dtype in DTYPES]
    every += [
        Attribute("ColorMode", "", "", "Mono °"),
        Attribute("Gain", "of the amplifier", "13SIM1:GAIN", -1.5),
        Attribute("Exposures", "", "13SIM1:N", -3),
        Attribute("Comment", "empty", "", ""),
        Attribute("None", "no numbers", "", np.array([], "float32")),
    ]
    one("ad00_attributes", "13SIM1:image", 8, np.arange(6, dtype="uint8").reshape(2, 3), every)

    # What other writers leave out: number, time, type of the data, and all but the name and data of an attribute.
    builder = flatbuffers.Builder(128)
    name, data = builder.CreateString("least"), builder.CreateByteVector(b"\x05")
    AdAttribute.AttributeStart(builder)
    AdAttribute.AttributeAddName(builder, name)
    AdAttribute.AttributeAddData(builder, data)
    entry = AdAttribute.AttributeEnd(builder)
    AdArray.ad00_ADArrayStartAttributesVector(builder, 1)
    builder.PrependUOffsetTRelative(entry)
    attributes = builder.EndVector()
    dimensions = builder.CreateNumpyVector(np.array([2], "int64"))
    source, pixels = builder.CreateString("least"), builder.CreateByteVector(b"\x01\xff")
    AdArray.ad00_ADArrayStart(builder)
    AdArray.ad00_ADArrayAddSourceName(builder, source)
    AdArray.ad00_ADArrayAddDimensions(builder, dimensions)
    AdArray.ad00_ADArrayAddData(builder, pixels)
    AdArray.ad00_ADArrayAddAttributes(builder, attributes)
    builder.Finish(AdArray.ad00_ADArrayEnd(builder), file_identifier=b"ad00")
    fields = {
        "source_name": "least",
        "id": 0,
        "timestamp": 0,
        "dimensions": array([2], "int64"),
        "data": {"dtype": "int8", "values": [1, -1], "shape": [2]},
        "attributes": [
            {"name": "least", "description": None, "source": None, "data": {"dtype": "int8", "values": [5]}},
        ],
    }
    save("ad00_least", bytes(builder.Output()), fields)


def se00():
    for dtype in DTYPES:
        values = some(dtype)
        times = None if dtype.startswith("u") else [T + i for i in range(len(values))]
        data = serialise_se00("field", 3, T, 1_000_000, 9, values, Location.End, times)
        fields = {
            "name": "field",
            "channel": 3,
            "packet_timestamp": T,
            "time_delta": 1e6,
            "timestamp_location": "End",
            "values": array(values),
            "timestamps": None if times is None else array(times, "int64"),
            "message_counter": 9,
        }
        save(f"se00_{dtype}", data, fields)


def runs():
    start = {
        "start_time": 1_700_000_000_123,
        "stop_time": 0,
        "run_name": "a run",
        "instrument_name": "AMOR",
        "nexus_structure": '{"children": []}',
        "job_id": "7b2c",
        "broker": "localhost:9092",
        "service_id": "",
        "filename": "a.nxs",
        "metadata": '{"who": "me"}',
        "control_topic": "amor_writer",
    }
    save("pl72", serialise_pl72(**start), start | {"n_periods": 1, "detector_spectrum_map": None})
    spectra = DetectorSpectrumMap(np.array([1, 2, 2]), np.array([10, 11, 12]), 3)
    expected = {"spectrum": array([1, 2, 2], "int32"), "detector_id": array([10, 11, 12], "int32"), "n_spectra": 3}
    data = serialise_pl72(**start, detector_spectrum_map=spectra)
    save("pl72_map", data, start | {"n_periods": 1, "detector_spectrum_map": expected})

    stop = {"stop_time": 2**64 - 1, "run_name": "a run", "job_id": "7b2c", "service_id": "w1", "command_id": "c9"}
    save("6s4t", serialise_6s4t(**stop), stop)


def ours():
    uuid = "00112233445566778899aabbccddeeff"
    gap = {
        "stream": "detector",
        "origin": "board 3",
        "first": 10,
        "last": 19,
        "from": T,
        "to": T + 5,
        "reason": "full",
        "by_sequence": True,
    }
    stream = {
        "name": "detector",
        "uuid": uuid,
        "epoch": 2,
        "first": 5,
        "next": 2**64 - 1,
        "clock": "epoch",
        "ended": True,
    }
    run = {
        "name": "1774",
        "id": uuid,
        "state": "open",
        "start": T,
        "stop": None,
        "settle": 2_000_000_000,
        "time": T,
        "metadata": '{"title": "Ni/Ti"}',
        "streams": [],
        "reason": "",
    }
    save("bprn_open", own("bprn", run), run)
    sealed = run | {
        "state": "sealed",
        "stop": T + 10**10,
        "reason": "end",
        "streams": [stream, stream | {"name": "t", "clock": "none"}],
    }
    save("bprn_sealed", own("bprn", sealed), sealed)
    least = {"name": "r", "id": uuid}
    defaults = {"state": "open", "start": 0, "settle": 0, "time": 0, "metadata": "", "streams": [], "reason": ""}
    # An absent field of 0 reads as 0; the stop of a run has another default, see bprn.fbs.
    save("bprn_least", own("bprn", least), least | defaults | {"stop": None})

    counts = [{"name": "aside.schema", "value": 1}, {"name": "lost.full", "value": 10}]
    commit = {
        "stage": "file",
        "run": "1774",
        "block": 3,
        "time": T,
        "inputs": [
            {"stream": "detector", "uuid": uuid, "epoch": 1, "first": 0, "next": 100, "done": 89, "counts": counts},
            {"stream": "t", "uuid": uuid[::-1], "epoch": 0, "first": 7, "next": 7, "done": 0, "counts": []},
        ],
        "gaps": [gap, gap | {"by_sequence": False, "origin": ""}],
        "output_first": 0,
        "output_next": 12,
        "state": '{"rows": 12}',
        "finished": True,
    }
    save("bpcm", own("bpcm", commit), commit)
    save("bpgp", own("bpgp", gap), gap)
    control = {"command": "begin", "arguments": '{"run": "1774"}', "from": "me", "time": T, "answer": ""}
    save("bpct", own("bpct", control), control)
    status = {"stage": "detector", "time": T, "json": '{"lost": 0}'}
    save("bpst", own("bpst", status), status)
    group = {"first": 2**40, "count": 3, "missing": array([1, 4], "uint32"), "time": T}
    group["members"] = array([2**40, 2**40 + 2, 2**40 + 3], "uint64")
    save("bpgr", own("bpgr", group), group)
    task = {
        "command": "",
        "number": 2**40,
        "slot": 3,
        "input": 1,
        "uuid": uuid,
        "epoch": 2,
        "block_first": 100,
        "block_next": 164,
        "first": 110,
        "next": 120,
        "part": 1,
        "parts": 2,
        "arguments": "",
    }
    save("bptk", own("bptk", task), task)
    save("bptk_configure", own("bptk", t := task | {"command": "configure", "arguments": '{"cut": 3.5}'}), t)
    answer = {
        "task": task,
        "output_first": 77,
        "outputs": array([1, 0, 2, 1, 1, 1, 2**32 - 1, 2**32 - 2, 1, 1], "uint32"),
        "aside": array([9], "uint32"),
        "gaps": [gap],
        "busy": 5_000_000,
        "state": '{"peaks": 8}',
        "kept": array([2**40, 3], "uint64"),
    }
    save("bpdn", own("bpdn", answer), answer)
    aside = {
        "stage": "peaks",
        "reason": "error",
        "text": "ValueError: \u03bc",
        "stream": "camera",
        "uuid": uuid,
        "epoch": 1,
        "sequence": 4711,
        "kind": "ad00",
        "time": T,
        "payload": array([0, 1, 255], "uint8"),
    }
    save("bpas", own("bpas", aside), aside)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for part in (ev44, f144, al00, da00, ad00, se00, runs, ours):
        part()
    files = sorted(OUT.glob("*.*"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files)} bytes in {OUT.name}")
