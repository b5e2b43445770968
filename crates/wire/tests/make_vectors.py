"""Makes tests/vectors/wire/*.bin with expected values in *.json, by implementations that are not ours.

    .venv/bin/python crates/wire/tests/make_vectors.py [SCHEMA...]

The facility's schemas come from ess-streaming-data-types; those of ISIS alone from isis_streaming_data_types, which
has the same module name and wants a newer Python: unpack its wheel and name the folder in ISIS_TYPES, or they are left
as they are. Beamport's own, and what neither package can write (`ar51`, `df12`, the digitiser's part of `ev42`), come
from the official FlatBuffers runtime, field by field from the table OWN below. The result is committed; run again only
to add vectors.
An array is written as {"dtype", "values"}, a da00 array has its "shape" besides.
"""

import datetime
import json
import math
import os
import pathlib
import sys
import types

import flatbuffers
import numpy as np
from flatbuffers import number_types as nt

# ess-streaming-data-types 0.27 asks numpy for names of its first version when it writes and reads f142.
np.unicode_, np.string_ = np.str_, np.bytes_

from streaming_data_types import area_detector_NDAr  # noqa: E402
from streaming_data_types.action_response_answ import serialise_answ  # noqa: E402
from streaming_data_types.alarm_al00 import Severity, serialise_al00  # noqa: E402
from streaming_data_types.area_detector_ad00 import Attribute, serialise_ad00  # noqa: E402
from streaming_data_types.area_detector_ADAr import Attribute as AdarAttribute  # noqa: E402
from streaming_data_types.area_detector_ADAr import serialise_ADAr  # noqa: E402
from streaming_data_types.array_1d_se00 import Location, serialise_se00  # noqa: E402
from streaming_data_types.dataarray_da00 import Variable, serialise_da00  # noqa: E402
from streaming_data_types.epics_connection_ep01 import ConnectionInfo, serialise_ep01  # noqa: E402
from streaming_data_types.epics_connection_info_ep00 import serialise_ep00  # noqa: E402
from streaming_data_types.eventdata_an44 import serialise_an44  # noqa: E402
from streaming_data_types.eventdata_ev42 import serialise_ev42  # noqa: E402
from streaming_data_types.eventdata_ev43 import serialise_ev43  # noqa: E402
from streaming_data_types.eventdata_ev44 import serialise_ev44  # noqa: E402
from streaming_data_types.fbschemas.alarm_al00 import Alarm  # noqa: E402
from streaming_data_types.fbschemas.area_detector_ad00 import Attribute as AdAttribute  # noqa: E402
from streaming_data_types.fbschemas.area_detector_ad00 import ad00_ADArray as AdArray  # noqa: E402
from streaming_data_types.fbschemas.NDAr_NDArray_schema import NDArray, NDAttribute, epicsTimeStamp  # noqa: E402
from streaming_data_types.finished_writing_wrdn import serialise_wrdn  # noqa: E402
from streaming_data_types.forwarder_config_update_fc00 import StreamInfo as Fc00Stream  # noqa: E402
from streaming_data_types.forwarder_config_update_fc00 import serialise_fc00  # noqa: E402
from streaming_data_types.forwarder_config_update_rf5k import StreamInfo as Rf5kStream  # noqa: E402
from streaming_data_types.forwarder_config_update_rf5k import serialise_rf5k  # noqa: E402
from streaming_data_types.histogram_hs00 import serialise_hs00  # noqa: E402
from streaming_data_types.histogram_hs01 import serialise_hs01  # noqa: E402
from streaming_data_types.json_json import serialise_json  # noqa: E402
from streaming_data_types.logdata_f142 import serialise_f142  # noqa: E402
from streaming_data_types.logdata_f144 import serialise_f144  # noqa: E402
from streaming_data_types.nicos_cache_ns10 import serialise_ns10  # noqa: E402
from streaming_data_types.run_start_pl72 import DetectorSpectrumMap, serialise_pl72  # noqa: E402
from streaming_data_types.run_stop_6s4t import serialise_6s4t  # noqa: E402
from streaming_data_types.sample_environment_senv import serialise_senv  # noqa: E402
from streaming_data_types.status_x5f2 import serialise_x5f2  # noqa: E402
from streaming_data_types.timestamps_tdct import serialise_tdct  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[3] / "tests" / "vectors" / "wire"
DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
T = 1_700_000_000_123_456_789

# Messages that no library writes: for each table its fields by id. A list names the table of its entries.
GAP = [
    ("stream", "text"),
    ("origin", "text"),
    ("first", "u64"),
    ("last", "u64"),
    ("from", "i64"),
    ("to", "i64"),
    ("reason", "text"),
    ("by_sequence", "bool"),
    ("count", "u64"),
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
TOTAL = [
    ("origin", "text"),
    ("first", "u64"),
    ("next", "u64"),
    ("last_time", "i64"),
    ("appended", "u64"),
    ("duplicate", "u64"),
    ("counts", COUNT),
    ("open", [("reason", "text"), ("bits", "u8s")]),
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
ADC = [
    ("amplitude", "u32s"),
    ("peak_area", "u32s"),
    ("background", "u32s"),
    ("threshold_time", "u64s"),
    ("peak_time", "u64s"),
]
OWN = {
    "ar51": [("source_name", "text"), ("message_id", "i64"), ("raw_data", "u8s")],
    "pu00": [
        ("source_name", "text"),
        ("message_id", "i64"),
        ("reference_time", "i64"),
        ("vetos", "u32"),
        ("period_number", "u32"),
        ("proton_charge", "f32"),
    ],
    "vc00": [("timestamp", "i64"), ("vetoes", "u32"), ("veto_names", "texts")],
    "un00": [("source_name", "text"), ("timestamp", "i64"), ("units", "text")],
    "df12": [("spectrum", "i32s"), ("detector_id", "i32s"), ("n_spectra", "i32")],
    "ev42": [
        ("source_name", "text"),
        ("message_id", "u64"),
        ("pulse_time", "u64"),
        ("time_of_flight", "u32s"),
        ("detector_id", "u32s"),
        ("facility_specific_data_type", "u8"),
        ("facility_specific_data", {"table": ADC}),
    ],
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
        ("inclusive", "bool"),
        ("clock_step", "i64"),
        ("instrument", "text"),
        ("instrument_back", "u32"),
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
        ("totals", TOTAL),
        ("part", "u32"),
        ("parts", "u32"),
        ("is_table", "bool"),
    ],
    "bpgp": GAP,
    "bpct": [("command", "text"), ("arguments", "text"), ("from", "text"), ("time", "i64"), ("answer", "text")],
    "bpst": [("stage", "text"), ("time", "i64"), ("json", "text")],
    "bpgr": [("first", "u64"), ("count", "u32"), ("missing", "u32s"), ("time", "i64"), ("members", "u64s")],
    "bppv": [("source_name", "text"), ("timestamp", "i64"), ("type_id", "text"), ("data", "u8s")],
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
        ("waits", "u64"),
        ("oldest", "i64"),
        ("due", "i64"),
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
        ("origin", "text"),
    ],
}
RUN_STATES = ["open", "settling", "sealed"]
FLAGS = {
    "u8": nt.Uint8Flags,
    "i32": nt.Int32Flags,
    "u32": nt.Uint32Flags,
    "u64": nt.Uint64Flags,
    "i64": nt.Int64Flags,
    "f32": nt.Float32Flags,
    "bool": nt.BoolFlags,
}


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
        elif kind == "i32s":
            offsets[name] = builder.CreateNumpyVector(np.array(value["values"], np.int32))
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
    """Writes one vector, if its schema was asked for."""
    if sys.argv[1:] and data[4:8].decode() not in sys.argv[1:]:
        return
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


def ev42():
    def one(name, source, number, time, tof, pixels, isis=None):
        fields = {
            "source_name": source,
            "message_id": number,
            "pulse_time": time,
            "time_of_flight": array(tof, "uint32"),
            "detector_id": array(pixels, "uint32"),
            "facility_specific_data": None
            if isis is None
            else isis | {"run_state": ["SETUP", "RUNNING"][isis["run_state"]]},
        }
        save(name, serialise_ev42(source, number, time, tof, pixels, isis), fields)

    one("ev42", "multigrid", 42, T, [1, 2**32 - 1, 3], [5, 0, 2**32 - 1])
    one("ev42_empty", "", 0, 2**64 - 1, [], [])
    running = {"period_number": 3, "run_state": 1, "proton_charge": 0.25}
    one("ev42_isis", "monitor", 2**64 - 1, 0, [7], [8], running)
    one("ev42_isis_setup", "monitor", 1, T, [7], [8], {"period_number": 0, "run_state": 0, "proton_charge": 0.0})
    fields = {
        "source_name": "adc",
        "message_id": 1,
        "pulse_time": T,
        "time_of_flight": array([1, 2], "uint32"),
        "detector_id": array([3, 4], "uint32"),
        "facility_specific_data": {
            "amplitude": array([10, 11], "uint32"),
            "peak_area": array([20, 2**32 - 1], "uint32"),
            "background": array([0, 1], "uint32"),
            "threshold_time": array([T, 2**64 - 1], "uint64"),
            "peak_time": array([T + 1, 0], "uint64"),
        },
    }
    save("ev42_adc", own("ev42", fields | {"facility_specific_data_type": 2}), fields)


def ev43():
    def one(name, source, number, times, index, tof, pixels):
        fields = {
            "source_name": source,
            "message_id": number,
            "pulse_time": array(times, "uint64"),
            "pulse_index": array(index, "uint32"),
            "time_of_flight": array(tof, "uint32"),
            "detector_id": array(pixels, "uint32"),
        }
        # A list would become floating-point numbers on the way.
        save(name, serialise_ev43(source, number, np.array(times, "uint64"), index, tof, pixels), fields)

    one("ev43", "multigrid", 2**64 - 1, [T, 2**64 - 1], [0, 2], [1, 2, 2**32 - 1], [5, 6, 0])
    one("ev43_empty", "", 0, [], [], [], [])


def older_frames():
    for dtype in ("uint16", "float64"):
        pixels = np.resize(some(dtype), (2, 3))
        known = [AdarAttribute("Gain", "of the amplifier", "SIM:GAIN", -1.5), AdarAttribute("Mode", "", "", "Mono °")]
        when = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
        fields = {
            "source_name": "13SIM1:image",
            "id": -7,
            "timestamp": 1_700_000_000_000_000_000,
            "dimensions": array([2, 3], "int64"),
            "data": shaped(pixels),
            "attributes": [
                {"name": "Gain", "description": "of the amplifier", "source": "SIM:GAIN", "data": array([-1.5])},
                {"name": "Mode", "description": "", "source": "", "data": "Mono °"},
            ],
        }
        save(f"adar_{dtype}", serialise_ADAr("13SIM1:image", -7, when, pixels, known), fields)
    # The library takes the time itself.
    area_detector_NDAr.time = types.SimpleNamespace(time=lambda: 1_700_000_000.123)
    data = area_detector_NDAr.serialise_ndar(-7, [2, 2], 3, [0, 1, 2, 3, 4, 5, 6, 255])
    fields = {"id": -7, "timeStamp": 1_700_000_000_123.0, "epicsTS": None, "dims": array([2, 2], "uint64")}
    fields |= {"dataType": "Uint16", "pData": array([0, 1, 2, 3, 4, 5, 6, 255], "uint8"), "pAttributeList": []}
    save("ndar", data, fields)
    builder = flatbuffers.Builder(128)
    words = [builder.CreateString(word) for word in ("Gain", "of the amplifier", "SIM:GAIN")]
    value = builder.CreateByteVector(b"\x05\x06")
    NDAttribute.NDAttributeStart(builder)
    NDAttribute.NDAttributeAddPName(builder, words[0])
    NDAttribute.NDAttributeAddPDescription(builder, words[1])
    NDAttribute.NDAttributeAddPSource(builder, words[2])
    NDAttribute.NDAttributeAddDataType(builder, 2)
    NDAttribute.NDAttributeAddPData(builder, value)
    entry = NDAttribute.NDAttributeEnd(builder)
    NDArray.NDArrayStartPAttributeListVector(builder, 1)
    builder.PrependUOffsetTRelative(entry)
    attributes = builder.EndVector()
    NDArray.NDArrayStart(builder)
    NDArray.NDArrayAddPAttributeList(builder, attributes)
    NDArray.NDArrayAddEpicsTS(builder, epicsTimeStamp.CreateepicsTimeStamp(builder, -5, 999_999_999))
    NDArray.NDArrayAddTimeStamp(builder, 1.5)
    builder.Finish(NDArray.NDArrayEnd(builder), file_identifier=b"NDAr")
    known = {"pName": "Gain", "pDescription": "of the amplifier", "pSource": "SIM:GAIN", "dataType": "Int16"}
    fields = {
        "id": 0,
        "timeStamp": 1.5,
        "epicsTS": {"secPastEpoch": -5, "nsec": 999_999_999},
        "dims": array([], "uint64"),
        "dataType": "Int8",
        "pData": array([], "uint8"),
        "pAttributeList": [known | {"pData": array([5, 6], "uint8")}],
    }
    save("ndar_attributes", bytes(builder.Output()), fields)


def an44():
    def one(name, source, number, times, index, tof, pixels, weight):
        fields = {
            "source_name": source,
            "message_id": number,
            "reference_time": array(times, "int64"),
            "reference_time_index": array(index, "int32"),
            "time_of_flight": array(tof, "int32"),
            "pixel_id": array(pixels, "int32"),
            "weight": array(weight, "int16"),
        }
        save(name, serialise_an44(source, number, times, index, tof, pixels, weight), fields)

    one("an44", "bifrost", 42, [T, T + 1], [0, 2], [1, 2, -(2**31)], [5, 6, 2**31 - 1], [1, -(2**15), 2**15 - 1])
    one("an44_empty", "", -1, [], [], [], [], [])


def f142():
    quiet = {"status": "NO_CHANGE", "severity": "NO_CHANGE"}
    for dtype in DTYPES:
        values = some(dtype)
        fields = {"source_name": "t_julabo", "timestamp": T} | quiet
        save(f"f142_{dtype}", serialise_f142(values[3], "t_julabo", T), fields | {"value": plain(values[3])})
        save(f"f142_{dtype}_array", serialise_f142(values, "t_julabo", T), fields | {"value": array(values)})
    fields = {"source_name": "", "timestamp": 2**64 - 1, "value": 0} | quiet
    save("f142_zero", serialise_f142(0, "", 2**64 - 1), fields)
    empty = np.array([], "float32")
    fields = {"source_name": "x", "timestamp": 0, "value": array(empty)} | quiet
    save("f142_empty_array", serialise_f142(empty, "x", 0), fields)
    fields = {"source_name": "state", "timestamp": T, "value": "grüezi"} | quiet
    save("f142_text", serialise_f142("grüezi", "state", T), fields)
    fields |= {"value": ["one", "", "drü"]}
    save("f142_texts", serialise_f142(["one", "", "drü"], "state", T), fields)
    hot = {"source_name": "t", "timestamp": T, "value": 1.5, "status": "HIHI", "severity": "MAJOR"}
    save("f142_alarm", serialise_f142(1.5, "t", T, 3, 1), hot)
    fine = hot | {"status": "NO_ALARM", "severity": "NO_ALARM"}
    save("f142_no_alarm", serialise_f142(1.5, "t", T, 0, 2), fine)


def connections():
    types = ["UNKNOWN", "NEVER_CONNECTED", "CONNECTED", "DISCONNECTED", "DESTROYED"]
    for number, word in enumerate(types):
        fields = {"timestamp": T + number, "type": word, "source_name": "AMOR:T", "service_id": "fw"}
        save(f"ep00_{word.lower()}", serialise_ep00(T + number, number, "AMOR:T", "fw"), fields)
    fields = {"timestamp": 2**64 - 1, "type": "CONNECTED", "source_name": "", "service_id": ""}
    save("ep00_nobody", serialise_ep00(2**64 - 1, 2, ""), fields)
    for status in ConnectionInfo:
        fields = {"timestamp": -T, "status": status.name, "source_name": "AMOR:T", "service_id": "fw"}
        save(f"ep01_{status.name.lower()}", serialise_ep01(-T, status, "AMOR:T", "fw"), fields)
    fields = {"timestamp": T, "status": "CONNECTED", "source_name": "AMOR:T", "service_id": None}
    save("ep01_nobody", serialise_ep01(T, ConnectionInfo.CONNECTED, "AMOR:T"), fields)


def tdct():
    def one(name, chopper, times, counter):
        fields = {"name": chopper, "timestamps": array(times, "uint64"), "sequence_counter": counter or 0}
        save(name, serialise_tdct(chopper, np.array(times, "uint64"), counter), fields)

    one("tdct", "chopper", [T, T + 71_428_571, 2**64 - 1], 7)
    one("tdct_empty", "", [], None)


def senv():
    for dtype in DTYPES[:8]:
        values = some(dtype)
        times = None if dtype.startswith("u") else [T + i for i in range(len(values))]
        # The library takes a time in whole microseconds.
        when = datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC)
        data = serialise_senv("field", 3, when, 1_000_000, 9, values, 1, times)
        fields = {
            "Name": "field",
            "Channel": 3,
            "PacketTimestamp": 1_700_000_000_000_000_000,
            "TimeDelta": 1e6,
            "TimestampLocation": "Start",
            "Values": array(values),
            "Timestamps": None if times is None else array(times, "uint64"),
            "MessageCounter": 9,
        }
        save(f"senv_{dtype}", data, fields)


def histograms():
    for schema, serialise, whole in (("hs00", serialise_hs00, "uint"), ("hs01", serialise_hs01, "int")):
        for dtype in (f"{whole}32", f"{whole}64", "float32", "float64"):
            counts = np.resize(some(dtype), (2, 3))
            edges = [np.arange(3, dtype=dtype), np.arange(4, dtype="float64") / 2]
            given = {
                "source": "just-bin-it",
                "timestamp": T,
                "current_shape": [2, 3],
                "dim_metadata": [
                    {"length": 2, "unit": "", "label": "y", "bin_boundaries": edges[0]},
                    {"length": 3, "unit": "us", "label": "time °", "bin_boundaries": edges[1]},
                ],
                "last_metadata_timestamp": T - 1,
                "data": counts,
                "errors": np.ones((2, 3), dtype),
                "info": '{"state": "COUNTING"}',
            }
            fields = given | {
                "current_shape": array([2, 3], f"{whole}32"),
                "dim_metadata": [
                    dim | {"bin_boundaries": array(dim["bin_boundaries"])} for dim in given["dim_metadata"]
                ],
                "offset": array([], f"{whole}32"),
                "data": shaped(counts),
                "errors": shaped(given["errors"]),
            }
            save(f"{schema}_{dtype}", serialise(given), fields)
        least = {"timestamp": 0, "current_shape": [0], "dim_metadata": [{"length": 0, "bin_boundaries": [0.0]}]}
        fields = {
            "source": "",
            "timestamp": 0,
            "current_shape": array([0], f"{whole}32"),
            "dim_metadata": [{"length": 0, "unit": "", "label": "", "bin_boundaries": array([0.0])}],
            "last_metadata_timestamp": 0,
            "offset": array([], f"{whole}32"),
            "data": array([], "float64"),
            "errors": None,
            "info": "",
        }
        save(f"{schema}_least", serialise(least | {"data": np.array([], "float64")}), fields)


def services():
    status = {
        "software_name": "filewriter",
        "software_version": "6.1.0",
        "service_id": "w1",
        "host_name": "amor",
        "process_id": 2**32 - 1,
        "update_interval": 2000,
        "status_json": '{"state": "idle"}',
    }
    save("x5f2", serialise_x5f2(**status), status)
    nothing = dict.fromkeys(status, "") | {"process_id": 0, "update_interval": 0}
    save("x5f2_nothing", serialise_x5f2(**nothing), nothing)
    for action, outcome in ((0, 0), (1, 1)):
        words = {"action": ["StartJob", "SetStopTime"][action], "outcome": ["Success", "Failure"][outcome]}
        answer = {
            "service_id": "w1",
            "job_id": "7b2c",
            "command_id": "c9",
            "message": "Started",
            "status_code": [201, -400][outcome],
        }
        stop = datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC)
        data = serialise_answ(**answer, action=action, outcome=outcome, stop_time=stop)
        save(f"answ_{words['outcome'].lower()}", data, answer | words | {"stop_time": 1_700_000_000_123})
    done = {"service_id": "w1", "job_id": "7b2c", "error_encountered": True, "file_name": "a.nxs"}
    done |= {"metadata": '{"hash": 1}', "message": "disk full °"}
    save("wrdn", serialise_wrdn(**done), done)
    plainly = done | {"error_encountered": False, "metadata": None, "message": None}
    save("wrdn_plain", serialise_wrdn(**plainly), plainly)
    entry = {"key": "nicos/t/value", "time": 1_700_000_000.25, "ttl": 10.0, "expired": True, "value": "1.5"}
    save("ns10", serialise_ns10("nicos/t/value", "1.5", 1_700_000_000.25, 10.0, True), entry)
    nothing = {"key": "", "time": 0.0, "ttl": 0.0, "expired": False, "value": ""}
    save("ns10_nothing", serialise_ns10("", ""), nothing)
    for name, text in (("json", '{"name": "°"}'), ("json_empty", "")):
        save(name, serialise_json(text), {"json": text})


def forwarders():
    protocols = ["PVA", "CA", "FAKE"]
    for schema, serialise, info in (("fc00", serialise_fc00, Fc00Stream), ("rf5k", serialise_rf5k, Rf5kStream)):
        for change, word in enumerate(["ADD", "REMOVE", "REMOVEALL", "REPLACE"][: 4 if schema == "fc00" else 3]):
            streams = [("AMOR:T", "f144", "amor_sample", 0, 0), ("°", "", "", 2, 2**31 - 1), ("p", "se00", "t", 1, 1)]
            streams = [] if word == "REMOVEALL" else [info(*stream[: len(info._fields)]) for stream in streams]
            # The library appends them from the back and never turns them round.
            expected = [s._asdict() | {"protocol": protocols[s.protocol]} for s in reversed(streams)]
            save(f"{schema}_{word.lower()}", serialise(change, streams), {"config_change": word, "streams": expected})


def isis():
    """Schemas that only ISIS has, and that no package writes."""
    raw = {"source_name": "detector", "message_id": -5, "raw_data": array([0, 1, 255], "uint8")}
    save("ar51", own("ar51", raw), raw)
    nothing = {"source_name": "", "message_id": 0, "raw_data": array([], "uint8")}
    save("ar51_empty", own("ar51", {"source_name": ""}), nothing)
    spectra = {
        "spectrum": array([1, 2, -1], "int32"),
        "detector_id": array([10, 11, 2**31 - 1], "int32"),
        "n_spectra": 3,
    }
    save("df12", own("df12", spectra), spectra)
    save("df12_nothing", own("df12", {}), {name: array([], "int32") for name in list(spectra)[:2]} | {"n_spectra": 0})

    if "ISIS_TYPES" not in os.environ:
        return
    import streaming_data_types

    # Its modules beside those of the package of the ESS.
    package = pathlib.Path(os.environ["ISIS_TYPES"]) / "streaming_data_types"
    streaming_data_types.__path__.append(str(package))
    streaming_data_types.fbschemas.__path__.append(str(package / "fbschemas"))
    from streaming_data_types.pulse_metadata_pu00 import serialise_pu00
    from streaming_data_types.units_un00 import serialise_un00
    from streaming_data_types.vetoes_vc00 import serialise_vc00

    words = [f"veto {bit} °" for bit in range(31)] + [""]
    save("vc00", serialise_vc00(T, 2**32 - 1, words), {"timestamp": T, "vetoes": 2**32 - 1, "veto_names": words})
    names = [name for name, _ in OWN["pu00"]]
    pulses = {
        "pu00": ("isis", 2**63 - 1, T, 2**32 - 1, 7, 0.25),
        "pu00_least": ("", 0, -1, None, None, None),
        "pu00_zero": ("isis", -1, 0, 0, 0, 0.0),
    }
    for name, values in pulses.items():
        save(name, serialise_pu00(*values), dict(zip(names, values, strict=True)))
    for name, units in (("un00", "µA h"), ("un00_none", None), ("un00_empty", "")):
        fields = {"source_name": "IN:BEAM", "timestamp": T, "units": units}
        save(name, serialise_un00("IN:BEAM", T, units), fields)


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
        "inclusive": False,
        "clock_step": 0,
        "instrument": '{"sinks": {"file": {}}}',
        "instrument_back": 0,
    }
    save("bprn_open", own("bprn", run), run)
    sealed = run | {
        "state": "sealed",
        "stop": T + 10**10,
        "reason": "end",
        "streams": [stream, stream | {"name": "t", "clock": "none"}],
        "inclusive": True,
        "clock_step": -30_000_000_000,
        "instrument": "",
        "instrument_back": 7,
    }
    save("bprn_sealed", own("bprn", sealed), sealed)
    least = {"name": "r", "id": uuid}
    defaults = {"state": "open", "start": 0, "settle": 0, "time": 0, "metadata": "", "streams": [], "reason": ""}
    defaults |= {"inclusive": False, "clock_step": 0, "instrument": "", "instrument_back": 0}
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
    # Of format 1 before gaps had a count and commits had totals: absent fields read as 0.
    counted = [gap | {"count": 0} for gap in commit["gaps"]]
    no_totals = {"totals": [], "part": 0, "parts": 0, "is_table": False}
    save("bpcm", own("bpcm", commit), commit | {"gaps": counted} | no_totals)
    save("bpgp", own("bpgp", gap), gap | {"count": 0})
    joined = gap | {"origin": "board 4", "first": 2**40, "last": 2**40 + 10**6, "by_sequence": False, "count": 500_000}
    save("bpgp_joined", own("bpgp", joined), joined)
    totals = [
        {
            "origin": "board 3",
            "first": 5,
            "next": 2**40,
            "last_time": T,
            "appended": 2**40 - 15,
            "duplicate": 3,
            "counts": [{"name": "lost.full", "value": 9}, {"name": "lost.unexplained", "value": 4}],
            "open": [
                {"reason": "lost.full", "bits": array([0b1010_0000, 1], "uint8")},
                {"reason": "lost.unexplained", "bits": array([0b10], "uint8")},
            ],
        },
        {
            "origin": "board 4",
            "first": 0,
            "next": 0,
            "last_time": 0,
            "appended": 0,
            "duplicate": 0,
            "counts": [{"name": "refused.size", "value": 3}],
            "open": [],
        },
    ]
    told = {"stage": "detector", "run": "", "inputs": [], "gaps": [joined], "finished": False}
    told |= {"totals": totals, "part": 1, "parts": 2, "is_table": True}
    save("bpcm_totals", own("bpcm", commit | told), commit | told)
    control = {"command": "begin", "arguments": '{"run": "1774"}', "from": "me", "time": T, "answer": ""}
    save("bpct", own("bpct", control), control)
    status = {"stage": "detector", "time": T, "json": '{"lost": 0}'}
    save("bpst", own("bpst", status), status)
    group = {"first": 2**40, "count": 3, "missing": array([1, 4], "uint32"), "time": T}
    group["members"] = array([2**40, 2**40 + 2, 2**40 + 3], "uint64")
    save("bpgr", own("bpgr", group), group)
    value = {"source_name": "LAB:THING", "timestamp": T, "type_id": "facility:thing/1.0"}
    value["data"] = array([128, 0, 1, 255], "uint8")
    save("bppv", own("bppv", value), value)
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
        "waits": 12,
        "oldest": T,
        "due": T + 20_000_000,
    }
    save("bpdn", own("bpdn", answer), answer | {"gaps": [gap | {"count": 0}]})
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
        "origin": "d001",
    }
    save("bpas", own("bpas", aside), aside)


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    facility = (
        ev42,
        ev43,
        ev44,
        older_frames,
        an44,
        f142,
        f144,
        al00,
        connections,
        tdct,
        da00,
        ad00,
        senv,
        se00,
        histograms,
    )
    for part in (*facility, runs, services, forwarders, isis, ours):
        part()
    files = sorted(OUT.glob("*.*"))
    print(f"{len(files)} files, {sum(f.stat().st_size for f in files)} bytes in {OUT.name}")
