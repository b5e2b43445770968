"""The messages that beamport writes, read by implementations that are not ours.

`tests/vectors/wire/ours/*.bin` are what our writer makes (a Rust test asserts that it still does);
`tests/vectors/wire/*.json` say what is in them. Facility schemas are read with ess-streaming-data-types,
beamport's own and what that does not read with the official FlatBuffers runtime by the table in `make_vectors.py`.
"""

import datetime
import importlib.util
import json
import math
import pathlib

import pytest

np = pytest.importorskip("numpy", reason="pip install numpy")
pytest.importorskip("streaming_data_types", reason="pip install ess-streaming-data-types")
import flatbuffers  # noqa: E402  (comes with ess-streaming-data-types)
from flatbuffers import number_types as nt  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
VECTORS = ROOT / "tests" / "vectors" / "wire"
NAMES = sorted(path.stem for path in VECTORS.glob("*.json"))

_spec = importlib.util.spec_from_file_location("make_vectors", ROOT / "crates/wire/tests/make_vectors.py")
make_vectors = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_vectors)

# After `make_vectors`, which gives them the numpy names that they miss.
from streaming_data_types import DESERIALISERS  # noqa: E402
from streaming_data_types.alarm_al00 import deserialise_al00  # noqa: E402
from streaming_data_types.area_detector_ad00 import deserialise_ad00  # noqa: E402
from streaming_data_types.array_1d_se00 import Location, deserialise_se00  # noqa: E402
from streaming_data_types.dataarray_da00 import deserialise_da00  # noqa: E402
from streaming_data_types.eventdata_ev44 import deserialise_ev44  # noqa: E402
from streaming_data_types.fbschemas.area_detector_ad00 import ad00_ADArray as AdArray  # noqa: E402
from streaming_data_types.logdata_f144 import deserialise_f144  # noqa: E402
from streaming_data_types.run_start_pl72 import deserialise_pl72  # noqa: E402
from streaming_data_types.run_stop_6s4t import deserialise_6s4t  # noqa: E402


def plain(value):
    """What was read, in the words of the expectations: lists, and text for what JSON has no number for."""
    if isinstance(value, np.ndarray):
        return [plain(entry) for entry in value.flatten()]
    return make_vectors.plain(value)


def same_array(found, expected):
    # The library gives 0 for a vector without elements.
    if isinstance(found, np.ndarray):
        assert found.dtype.name == expected["dtype"]
        assert plain(found) == expected["values"]
    else:
        assert found == 0 and expected["values"] == []


def ev44(data, fields):
    found = deserialise_ev44(data)
    assert found.source_name == fields["source_name"]
    assert found.message_id == fields["message_id"]
    for name in ("reference_time", "reference_time_index", "time_of_flight", "pixel_id"):
        same_array(getattr(found, name), fields[name])


def f144(data, fields):
    found = deserialise_f144(data)
    assert (found.source_name, found.timestamp_unix_ns) == (fields["source_name"], fields["timestamp"])
    if isinstance(fields["value"], dict):
        same_array(found.value, fields["value"])
    else:
        assert plain(found.value) == fields["value"]


def al00(data, fields):
    found = deserialise_al00(data)
    assert found.source == fields["source_name"]
    assert found.timestamp_ns == fields["timestamp"]
    assert found.severity.name == fields["severity"]
    assert found.message == fields["message"]


def da00(data, fields):
    found = deserialise_da00(data)
    assert (found.source_name, found.timestamp_ns) == (fields["source_name"], fields["timestamp"])
    assert len(found.data) == len(fields["data"])
    for variable, expected in zip(found.data, fields["data"], strict=True):
        for name in ("name", "unit", "label", "source"):
            assert getattr(variable, name) == expected[name]
        assert list(variable.axes) == expected["axes"]
        assert list(variable.shape) == expected["shape"]["values"]
        if isinstance(expected["data"], str):
            assert variable.data == expected["data"]
        elif isinstance(variable.data, np.ndarray):
            assert list(variable.data.shape) == expected["data"]["shape"]
            same_array(variable.data, expected["data"])
        else:
            assert [variable.data] == expected["data"]["values"]


def ad00(data, fields):
    if fields["attributes"] and fields["attributes"][0]["description"] is None:
        pytest.skip("the library wants a description and a source of each attribute")
    found = deserialise_ad00(data)
    assert found.timestamp_ns == fields["timestamp"]
    frame(found, fields)


def adar(data, fields):
    found = DESERIALISERS["ADAr"](data)
    assert int(found.timestamp.timestamp() * 1000) == fields["timestamp"] // 1_000_000
    frame(found, fields)


def frame(found, fields):
    assert (found.source_name, found.unique_id) == (fields["source_name"], fields["id"])
    assert list(found.dimensions) == fields["dimensions"]["values"]
    if isinstance(fields["data"], str):
        assert found.data == fields["data"]
    else:
        assert list(found.data.shape) == fields["data"]["shape"]
        same_array(found.data, fields["data"])
    assert len(found.attributes) == len(fields["attributes"])
    for attribute, expected in zip(found.attributes, fields["attributes"], strict=True):
        for name in ("name", "description", "source"):
            assert getattr(attribute, name) == expected[name]
        if isinstance(attribute.data, np.ndarray):
            same_array(attribute.data, expected["data"])
        elif isinstance(attribute.data, str):
            assert attribute.data == expected["data"]
        else:
            assert [attribute.data] == expected["data"]["values"]


def se00(data, fields):
    found = deserialise_se00(data)
    assert (found.name, found.channel) == (fields["name"], fields["channel"])
    assert found.timestamp_unix_ns == fields["packet_timestamp"]
    assert found.sample_ts_delta == fields["time_delta"]
    assert found.ts_location == getattr(Location, fields["timestamp_location"])
    assert found.message_counter == fields["message_counter"]
    same_array(found.values, fields["values"])
    if fields["timestamps"] is None:
        assert found.value_ts is None
    else:
        same_array(found.value_ts, fields["timestamps"])


def pl72(data, fields):
    found = deserialise_pl72(data)
    for name in fields:
        if name == "detector_spectrum_map":
            continue
        if name != "n_periods":  # the library does not read it
            assert getattr(found, name) == fields[name]
    expected = fields["detector_spectrum_map"]
    if expected is None:
        assert found.detector_spectrum_map is None
    else:
        same_array(found.detector_spectrum_map.spectrum_numbers, expected["spectrum"])
        same_array(found.detector_spectrum_map.detector_ids, expected["detector_id"])
        assert found.detector_spectrum_map.n_spectra == expected["n_spectra"]


def run_stop(data, fields):
    assert deserialise_6s4t(data)._asdict() == fields


def own_table(table, spec):
    """A table of beamport's own, field by field with the official runtime."""
    found = {}
    for number, (name, kind) in enumerate(spec):
        place = table.Offset(4 + 2 * number)
        if place == 0:
            found[name] = None
            continue
        place += table.Pos
        if kind == "text":
            found[name] = table.String(place).decode()
        elif kind in ("uuid", "u8s", "i32s", "u32s", "u64s"):
            flags = {"i32s": nt.Int32Flags, "u32s": nt.Uint32Flags, "u64s": nt.Uint64Flags}.get(kind, nt.Uint8Flags)
            values = table.GetVectorAsNumpy(flags, place - table.Pos)
            found[name] = values.tobytes().hex() if kind == "uuid" else make_vectors.array(values)
        elif kind == "texts":
            start, count = table.Vector(place - table.Pos), table.VectorLen(place - table.Pos)
            found[name] = [table.String(start + 4 * at).decode() for at in range(count)]
        elif isinstance(kind, dict):
            inner = flatbuffers.table.Table(table.Bytes, table.Indirect(place))
            found[name] = own_table(inner, kind["table"])
        elif isinstance(kind, list):
            start = table.Vector(place - table.Pos)
            entries = range(table.VectorLen(place - table.Pos))
            children = [flatbuffers.table.Table(table.Bytes, table.Indirect(start + 4 * at)) for at in entries]
            found[name] = [own_table(child, kind) for child in children]
        else:
            found[name] = table.Get(make_vectors.FLAGS[kind], place)
    return found


def own(data, fields):
    schema = data[4:8].decode()
    root = int.from_bytes(data[:4], "little")
    found = own_table(flatbuffers.table.Table(bytearray(data), root), make_vectors.OWN[schema])
    if schema == "bprn":
        found["state"] = make_vectors.RUN_STATES[found["state"]]
        found["stop"] = None if found["stop"] == 2**63 - 1 else found["stop"]
    assert found == fields


# Names of the library where they are not those of the schema, and words where it gives numbers.
RENAMED = {
    "timestamp": "timestamp_unix_ns",
    "status": "alarm_status",
    "severity": "alarm_severity",
    "time": "time_stamp",
    "facility_specific_data": "specific_data",
    "Name": "name",
    "Channel": "channel",
    "TimeDelta": "sample_ts_delta",
    "TimestampLocation": "ts_location",
    "MessageCounter": "message_counter",
    "Values": "values",
    "Timestamps": "value_ts",
}
WORDS = {
    "run_state": ["SETUP", "RUNNING"],
    "TimestampLocation": ["Unknown", "Start", "Middle", "End"],
    "type": ["UNKNOWN", "NEVER_CONNECTED", "CONNECTED", "DISCONNECTED", "DESTROYED"],
    "status": "NO_ALARM READ WRITE HIHI HIGH LOLO LOW STATE COS COMM TIMED HWLIMIT CALC SCAN LINK SOFT BAD_SUB UDF "
    "DISABLE SIMM READ_ACCESS WRITE_ACCESS NO_CHANGE".split(),
    "severity": ["MINOR", "MAJOR", "NO_ALARM", "INVALID", "NO_CHANGE"],
    "protocol": ["PVA", "CA", "FAKE"],
    "config_change": ["ADD", "REMOVE", "REMOVEALL", "REPLACE"],
    "action": ["StartJob", "SetStopTime"],
    "outcome": ["Success", "Failure"],
}


def same(found, expected, name=""):
    """Whether a library says the same, in its own names and types."""
    if isinstance(found, np.ndarray) and found.ndim == 0:
        found = found.item()
    if isinstance(expected, dict) and "values" in expected and "dtype" in expected:
        if isinstance(found, list):  # the shape of a histogram, and errors that are not there
            assert found == expected["values"]
        else:
            same_array(found, expected)
    elif isinstance(expected, dict):
        found = found if isinstance(found, dict) else found._asdict()
        for word, value in expected.items():
            renamed = word if word in found else RENAMED.get(word)
            if renamed in found:  # the library leaves some out
                same(found[renamed], value, word)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other, name)
    elif isinstance(found, datetime.datetime):
        assert int(found.timestamp() * 1000) == expected
    elif hasattr(found, "name"):
        assert found.name == expected
    elif isinstance(expected, str) and name in WORDS:
        assert WORDS[name][found] == expected
    else:
        # Nothing, where the sender left out what can be left out, is an empty text or list to some.
        assert plain(found) == expected or (expected is None and len(found) == 0)


def table(data, fields):
    schema = data[4:8].decode()
    if schema == "ev42" and "amplitude" in (fields["facility_specific_data"] or {}):
        fields = fields | {"facility_specific_data": None}  # the library does not read the digitiser's
    same(DESERIALISERS[schema](data), fields)


def ndar(data, fields):
    if not fields["pAttributeList"]:  # the library wants dimensions, and does not read the attributes
        found = DESERIALISERS["NDAr"](data)
        assert (found.id, found.timestamp) == (fields["id"], fields["timeStamp"])
        assert found.data.tobytes() == bytes(fields["pData"]["values"])


def text(data, fields):
    assert DESERIALISERS["json"](data) == fields["json"]


READERS = {
    "ev44": ev44,
    "f144": f144,
    "al00": al00,
    "da00": da00,
    "ad00": ad00,
    "se00": se00,
    "pl72": pl72,
    "6s4t": run_stop,
    "json": text,
    "ADAr": adar,
    "NDAr": ndar,
}


def test_there_are_vectors():
    assert len(NAMES) >= 160
    assert {path.stem for path in (VECTORS / "ours").glob("*.bin")} == set(NAMES)


@pytest.mark.parametrize("folder", ["", "ours"])
@pytest.mark.parametrize("name", NAMES)
def test_others_read_what_we_write(name, folder):
    expected = json.loads((VECTORS / f"{name}.json").read_text())
    data = (VECTORS / folder / f"{name}.bin").read_bytes()
    assert data[4:8].decode() == expected["schema"]
    if folder == "" and expected["schema"] in make_vectors.OWN and expected["schema"] != "ev42":
        pytest.skip("made by the same table: nothing to compare")
    schema = expected["schema"]
    made_here = schema in make_vectors.OWN and schema != "ev42"
    READERS.get(schema, own if made_here else table)(data, expected["fields"])


def test_our_arrays_are_aligned_for_numpy():
    # Theirs are not always: ess-streaming-data-types puts the bytes of da00 where they come.
    data = (VECTORS / "ours" / "da00_types.bin").read_bytes()
    arrays = [variable.data for variable in deserialise_da00(data).data]
    assert len(arrays) == len(make_vectors.DTYPES)
    assert all(array.flags.aligned for array in arrays)


def test_our_pixels_start_on_a_line_of_the_cache():
    for name in (name for name in NAMES if name.startswith("ad00")):
        data = (VECTORS / "ours" / f"{name}.bin").read_bytes()
        pixels = AdArray.ad00_ADArray.GetRootAs(data).DataAsNumpy()
        if len(pixels):
            place = pixels.__array_interface__["data"][0] - np.frombuffer(data, np.uint8).__array_interface__["data"][0]
            assert place % 64 == 0


def test_nan_is_told_apart_from_numbers():
    assert plain(np.array([math.nan, math.inf, 1.0])) == ["NaN", "inf", 1.0]
