"""The shape of the test suite of `streaming_data_types`, for every schema: what is written by hand comes back, another
id is refused, the schema is in both lists, arrays keep their type.

The same tests run on `beamport.wire` and, where it is installed, on the package itself, so that both are held to the
same; and each reads what the other writes. `test_wire_isis.py` runs this file once more with the package of ISIS.
"""

from __future__ import annotations

import datetime
import importlib
import struct

import beamport.wire
import numpy as np
import pytest

try:
    import streaming_data_types
except ImportError:
    streaming_data_types = None
# The package of the ESS asks numpy for names of its first version when it writes and reads f142.
np.unicode_, np.string_ = np.str_, np.bytes_

PACKAGES = [package for package in (beamport.wire, streaming_data_types) if package]
NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
WHOLE = NUMBERS[:8]
DAY = datetime.datetime(2026, 2, 20, 12, 30, tzinfo=datetime.UTC)


def array(dtype, *values):
    return np.array(values, dtype)


def renamed(given, **names):
    """What was given, and the same under the names that the result has: `result=argument`."""
    of = {argument: result for result, argument in names.items()}
    return given, {of.get(name, name): value for name, value in given.items()}


def same(given):
    return given, given


def events(kind, **more):
    return same(
        {
            "source_name": "some_source",
            "message_id": 123456,
            "reference_time": array(f"{kind}64", 1618573589123781958, 1618573590133830371),
            "reference_time_index": array("int32", 0, 2),
            "time_of_flight": array("int32", 100, 200, 300),
            "pixel_id": array("int32", 10, -20, 2**31 - 1),
        }
        | more
    )


def ev42(m):
    return same(
        {
            "source_name": "some_source",
            "message_id": 123456,
            "pulse_time": 1567876543210987654,
            "time_of_flight": array("uint32", 1, 2, 3),
            "detector_id": array("uint32", 4, 5, 2**32 - 1),
        }
    )


def ev42_isis(m):
    given, _ = ev42(m)
    specific = {"period_number": 5, "run_state": 1, "proton_charge": 1.25}
    return given | {"isis_specific": specific}, given | {"specific_data": specific}


def ev43(m):
    return same(
        {
            "source_name": "some_source",
            "message_id": 123456,
            "pulse_time": array("uint64", 567890, 568890),
            "pulse_index": array("uint32", 0, 4),
            "time_of_flight": array("uint32", 1, 2, 3, 4, 5, 6),
            "detector_id": array("uint32", 4, 5, 6, 7, 8, 9),
        }
    )


def frame(m, time):
    attributes = [
        m.Attribute("name1", "desc1", "src1", "value"),
        m.Attribute("name2", "desc2", "src2", 11),
        m.Attribute("name3", "desc3", "src3", 3.14),
        m.Attribute("name4", "desc4", "src4", np.linspace(0, 10)),
    ]
    data = np.array([[1, 2, 3], [3, 4, 5]], "uint64")
    given = {"source_name": "some_source", "unique_id": 754, "data": data, "attributes": attributes} | time
    return given, given | {"dimensions": (2, 3)}


def ndar(m):
    given = {"id": 754, "dims": [10, 10], "data_type": 1, "data": list(range(100))}
    return given, {"id": 754, "data": np.arange(100, dtype="uint8").reshape(10, 10)}


def da00(m):
    given = {
        "source_name": "some_source",
        "timestamp_ns": 1618573589123781958,
        "data": [
            m.Variable(name="data", unit="counts", axes=["time", "y"], data=np.arange(6, dtype="uint64").reshape(2, 3)),
            m.Variable(name="time", unit="hour", label="elapsed clock time", axes=["time"], data=np.arange(2.0)),
            m.Variable(name="strided", axes=["x"], data=np.arange(9, dtype="int16")[::3]),
            m.Variable(name="index", source="nobody", data=17),
            m.Variable(name="yes", data=1),
            m.Variable(name="temperature", data=1.5),
            m.Variable(name="user", data="Erna"),
        ],
    }
    read = [m.Variable(**vars(one)) for one in given["data"]]
    # Of a number and of a text, the shape is that of its bytes.
    given["data"][4].data = True
    return given, given | {"data": read}


def histogram(*, whole, two=False, **more):
    edges = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    dims = [{"length": 5, "bin_boundaries": edges, "unit": "m", "label": "some_label"}]
    data = array(f"{whole}64", 1, 2, 3, 4, 5)
    if two:
        dims.append({"length": 2, "bin_boundaries": array(f"{whole}32", 0, 1, 2), "unit": "b", "label": "other"})
        data = np.arange(10, dtype="float32").reshape(5, 2)
    given = {
        "source": "some_source",
        "timestamp": 123456,
        "current_shape": list(data.shape),
        "dim_metadata": dims,
        "last_metadata_timestamp": 123456,
        "data": data,
        "errors": np.sqrt(data.astype("float64")),
        "info": "info_string",
    } | more
    return {"histogram": given}, given


def histogram_least(whole):
    data = array(f"{whole}32", 1, 2)
    dims = [{"length": 2, "bin_boundaries": np.array([0.0, 1.0, 2.0])}]
    given = {"timestamp": 1, "current_shape": [2], "dim_metadata": dims, "data": data}
    read = {"source": "", "errors": [], "last_metadata_timestamp": 0, "info": ""}
    return {"histogram": given}, given | read | {"dim_metadata": [dims[0] | {"unit": "", "label": ""}]}


def f142(m):
    given = {"value": 42, "source_name": "some_source", "timestamp_unix_ns": 1585332414000000000}
    return given, given | {"value": np.array(42), "alarm_status": 22, "alarm_severity": 4}


def f142_alarm(m):
    given = {"value": 1.5, "source_name": "some_source", "alarm_status": 4, "alarm_severity": 1}
    return given, given | {"value": np.array(1.5), "timestamp_unix_ns": 0}


def pl72(m):
    spectra = m.DetectorSpectrumMap(array("int32", 5, 4, 1), array("int32", 0, 1, 2), 3)
    return same(
        {
            "job_id": "some_key",
            "filename": "test_file.nxs",
            "start_time": 567890,
            "stop_time": 578214,
            "run_name": "test_run",
            "nexus_structure": "{}",
            "service_id": "filewriter1",
            "instrument_name": "LOKI",
            "broker": "localhost:9092",
            "metadata": "{3:1}",
            "detector_spectrum_map": spectra,
            "control_topic": "some_topic",
        }
    )


def forwarder(m, **more):
    streams = [
        m.StreamInfo(**({"channel": f"channel{at}", "schema": "f144", "topic": "topic", "protocol": at} | more))
        for at in range(3)
    ]
    return {"config_change": 1, "streams": streams}, {"config_change": 1, "streams": streams[::-1]}


def samples(time, dtype, **more):
    given = {
        "name": "some_name",
        "channel": 42,
        "sample_ts_delta": 0.005,
        "message_counter": 123,
        "values": array(dtype, 1, 2, 3),
        "ts_location": 3,
    } | time
    return given, given | {"value_ts": None}


def timed(given, times):
    given, read = given
    return given | {"value_timestamps": times}, read | {"value_ts": times}


# Case -> the module, and from it the arguments and what is read.
CASES = {
    "6s4t": (
        "run_stop_6s4t",
        lambda m: same({"job_id": "key", "run_name": "run", "service_id": "id", "command_id": "cmd", "stop_time": 57}),
    ),
    "6s4t open": (
        "run_stop_6s4t",
        lambda m: (
            {"job_id": "key", "service_id": None},
            {"job_id": "key", "run_name": "test_run", "service_id": "", "command_id": "", "stop_time": 0},
        ),
    ),
    "6s4t date": (
        "run_stop_6s4t",
        lambda m: ({"job_id": "key", "stop_time": DAY}, {"stop_time": int(DAY.timestamp() * 1000)}),
    ),
    "ADAr": ("area_detector_ADAr", lambda m: frame(m, {"timestamp": DAY})),
    "NDAr": ("area_detector_NDAr", ndar),
    "ad00": ("area_detector_ad00", lambda m: frame(m, {"timestamp_ns": 1618573589123781958})),
    "al00": (
        "alarm_al00",
        lambda m: same({"source": "some_source", "timestamp_ns": 17, "severity": m.Severity.MAJOR, "message": "Hot"}),
    ),
    "an44": ("eventdata_an44", lambda m: events("int", weight=array("int16", 1, -1, 2**15 - 1))),
    "answ": (
        "action_response_answ",
        lambda m: same(
            {
                "service_id": "some_service_id_1234",
                "job_id": "some_job_id_abcdef",
                "command_id": "some command id",
                "action": m.ActionType.SetStopTime,
                "outcome": m.ActionOutcome.Failure,
                "message": "some random error message",
                "status_code": 123456789,
                "stop_time": DAY,
            }
        ),
    ),
    "ar51": (
        "readout_data_ar51",
        lambda m: (
            {"source_name": "some_source", "message_id": 123456, "raw_data": bytearray(range(9))},
            {"source_name": "some_source", "message_id": 123456, "raw_data": np.arange(9, dtype="uint8")},
        ),
    ),
    "ar51 array": (
        "readout_data_ar51",
        lambda m: (
            {"source_name": "some_source", "message_id": 123456, "raw_data": np.array([100, 200, 30])},
            {"raw_data": array("uint8", 100, 200, 30)},
        ),
    ),
    "da00": ("dataarray_da00", da00),
    "ep00": (
        "epics_connection_info_ep00",
        lambda m: renamed(
            {"timestamp_ns": 17, "event_type": 2, "source_name": "test", "service_id": "service"},
            timestamp="timestamp_ns",
            type="event_type",
        ),
    ),
    "ep01": (
        "epics_connection_ep01",
        lambda m: renamed(
            {"timestamp_ns": 17, "status": m.ConnectionInfo.CONNECTED, "source_name": "test", "service_id": "service"},
            timestamp="timestamp_ns",
        ),
    ),
    "ep01 nobody": (
        "epics_connection_ep01",
        lambda m: (
            {"timestamp_ns": 17, "status": m.ConnectionInfo.UNKNOWN, "source_name": "test"},
            {"timestamp": 17, "status": m.ConnectionInfo.UNKNOWN, "source_name": "test", "service_id": ""},
        ),
    ),
    "ev42": ("eventdata_ev42", ev42),
    "ev42 isis": ("eventdata_ev42", ev42_isis),
    "ev43": ("eventdata_ev43", ev43),
    "ev44": ("eventdata_ev44", lambda m: events("int")),
    "f142": ("logdata_f142", f142),
    "f142 alarm": ("logdata_f142", f142_alarm),
    "f144": ("logdata_f144", lambda m: same({"source_name": "some_source", "value": 4, "timestamp_unix_ns": 17})),
    "fc00": ("forwarder_config_update_fc00", lambda m: forwarder(m, periodic=1)),
    "fc00 nothing": (
        "forwarder_config_update_fc00",
        lambda m: same({"config_change": m.UpdateType.UpdateType.REMOVEALL, "streams": []}),
    ),
    "hs00": ("histogram_hs00", lambda m: histogram(whole="uint")),
    "hs00 two": ("histogram_hs00", lambda m: histogram(whole="uint", two=True)),
    "hs00 least": ("histogram_hs00", lambda m: histogram_least("uint")),
    "hs01": ("histogram_hs01", lambda m: histogram(whole="int")),
    "hs01 two": ("histogram_hs01", lambda m: histogram(whole="int", two=True)),
    "hs01 least": ("histogram_hs01", lambda m: histogram_least("int")),
    "json": ("json_json", lambda m: ({"json_str": '{"x": 1}'}, '{"x": 1}')),
    "json bytes": ("json_json", lambda m: ({"json_str": b'{"x": 1}'}, '{"x": 1}')),
    "ns10": (
        "nicos_cache_ns10",
        lambda m: same({"key": "some_key", "time_stamp": 123456.5, "ttl": 4.5, "expired": True, "value": "value"}),
    ),
    "pl72": ("run_start_pl72", pl72),
    "pu00": (
        "pulse_metadata_pu00",
        lambda m: same(
            {
                "source_name": "some_source",
                "message_id": 123456,
                "timestamp_ns": 1618573589123781958,
                "vetos": 5,
                "period_number": 7,
                "proton_charge": 0.25,
            }
        ),
    ),
    "rf5k": ("forwarder_config_update_rf5k", forwarder),
    "se00": ("array_1d_se00", lambda m: samples({"timestamp_unix_ns": 17}, "float64")),
    "se00 times": (
        "array_1d_se00",
        lambda m: timed(samples({"timestamp_unix_ns": 17}, "uint16"), array("int64", 1, 2, 3)),
    ),
    "senv": ("sample_environment_senv", lambda m: samples({"timestamp": DAY}, "int64")),
    "senv times": (
        "sample_environment_senv",
        lambda m: timed(samples({"timestamp": DAY}, "uint8"), array("uint64", 1, 2, 3)),
    ),
    "tdct": (
        "timestamps_tdct",
        lambda m: same({"name": "name", "timestamps": array("uint64", 0, 1, 2), "sequence_counter": 42}),
    ),
    "tdct one": ("timestamps_tdct", lambda m: ({"name": "n", "timestamps": 7}, {"timestamps": array("uint64", 7)})),
    "un00": ("units_un00", lambda m: same({"source": "some_source", "timestamp_ns": 17, "units": "mm"})),
    "vc00": (
        "vetoes_vc00",
        lambda m: same({"timestamp_ns": 17, "vetoes": 5, "veto_names": [f"veto{at}".encode() for at in range(32)]}),
    ),
    "wrdn": (
        "finished_writing_wrdn",
        lambda m: same(
            {
                "service_id": "some_service_id_1234",
                "job_id": "some_job_id_abcdef",
                "error_encountered": True,
                "file_name": "somefile.nxs",
                "metadata": '{"hello":4}',
                "message": "some random error message",
            }
        ),
    ),
    "wrdn least": (
        "finished_writing_wrdn",
        lambda m: (
            {"service_id": "a", "job_id": "b", "error_encountered": False, "file_name": "c"},
            {"error_encountered": False, "metadata": None, "message": None},
        ),
    ),
    "x5f2": (
        "status_x5f2",
        lambda m: same(
            {
                "software_name": "nicos/test",
                "software_version": "1.0.0",
                "service_id": "1a2b3c",
                "host_name": "localhost",
                "process_id": 1234,
                "update_interval": 2**32 - 1,
                "status_json": '{"content" : "log_or_status_message"}',
            }
        ),
    ),
}
SCHEMAS = sorted({case.split()[0] for case in CASES})


@pytest.fixture(params=PACKAGES, ids=lambda package: package.__name__)
def package(request):
    return request.param


def arguments(package, case):
    """The arguments of a case, and what is read; skips what this package does not have."""
    schema, (name, make) = case.split()[0], CASES[case]
    if schema not in package.SERIALISERS:
        pytest.skip(f"{package.__name__} has no {schema}")
    return make(importlib.import_module(f"{package.__name__}.{name}"))


def written(package, case):
    given, _ = arguments(package, case)
    return package.SERIALISERS[case.split()[0]](**given)


def plain(value):
    """Without classes, which each package has of its own."""
    if type(value).__name__ in ("Attribute", "Variable"):
        known = vars(value)
        return plain(known | {"shape": list(map(int, known["shape"]))} if "shape" in known else known)
    if hasattr(value, "name") and hasattr(value, "value"):
        return value.name, value.value
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.shape, value.tolist()
    return type(value).__name__, value


def assert_reads(found, wanted):
    if isinstance(wanted, str):
        assert found == wanted
        return
    for name, value in wanted.items():
        one = found[name] if isinstance(found, dict) else getattr(found, name)
        if name == "dimensions":
            assert tuple(one) == value
        else:
            assert plain(one) == plain(value), name


@pytest.mark.parametrize("case", CASES)
def test_what_was_written_by_hand_comes_back(package, case):
    _, wanted = arguments(package, case)
    message = written(package, case)
    assert isinstance(message, bytes)
    assert_reads(package.DESERIALISERS[case.split()[0]](message), wanted)


@pytest.mark.parametrize("case", CASES)
def test_each_reads_what_the_other_writes(case):
    if len(PACKAGES) < 2:
        pytest.skip("pip install ess-streaming-data-types")
    ours, theirs = PACKAGES
    schema = case.split()[0]
    _, wanted = arguments(theirs, case)
    for writer, reader in ((ours, theirs), (theirs, ours)):
        assert_reads(reader.DESERIALISERS[schema](written(writer, case)), wanted)


@pytest.mark.parametrize("case", CASES)
def test_if_buffer_has_wrong_id_then_throws(package, case):
    message = bytearray(written(package, case))
    message[4:8] = b"1234"
    exceptions = importlib.import_module(f"{package.__name__}.exceptions")
    with pytest.raises(exceptions.WrongSchemaException):
        package.DESERIALISERS[case.split()[0]](bytes(message))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_if_buffer_is_too_short_then_throws(package, schema):
    if schema not in package.DESERIALISERS:
        pytest.skip(f"{package.__name__} has no {schema}")
    exceptions = importlib.import_module(f"{package.__name__}.exceptions")
    with pytest.raises(exceptions.ShortBufferException):
        package.DESERIALISERS[schema](b"1234567")


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schema_type_is_in_global_serialisers_list(schema):
    assert schema in beamport.wire.SERIALISERS
    assert schema in beamport.wire.DESERIALISERS


def test_every_schema_has_a_case():
    for package in PACKAGES:
        assert set(package.SERIALISERS) == set(package.DESERIALISERS)
        assert set(package.SERIALISERS) <= set(SCHEMAS)
    assert set(beamport.wire.SERIALISERS) == set(SCHEMAS)


@pytest.mark.parametrize("case", CASES)
def test_the_schema_can_be_asked_for(package, case):
    utils = importlib.import_module(f"{package.__name__}.utils")
    assert utils.get_schema(written(package, case)) == case.split()[0]


# Schema -> the types that its arrays may have, and how one goes through.
def through(package, schema, values):
    """One array through a message."""
    if schema not in package.SERIALISERS:
        pytest.skip(f"{package.__name__} has no {schema}")
    write, read = package.SERIALISERS[schema], package.DESERIALISERS[schema]
    if schema == "da00":
        variable = importlib.import_module(f"{package.__name__}.dataarray_da00").Variable
        return read(write("s", 1, [variable(name="v", axes=["x"], data=values)])).data[0].data
    if schema in ("ad00", "ADAr"):
        return read(write("s", 1, 1 if schema == "ad00" else DAY, values)).data
    if schema == "NDAr":
        return read(write(1, list(values.shape), NUMBERS.index(values.dtype.name), values.view("uint8"))).data
    if schema in ("hs00", "hs01"):
        dims = [{"length": 3, "bin_boundaries": np.arange(4.0)}]
        return read(write({"timestamp": 1, "current_shape": [3], "dim_metadata": dims, "data": values}))["data"]
    if schema in ("se00", "senv"):
        return read(write("s", 1, 1 if schema == "se00" else DAY, 1, 1, values)).values
    return read(write(*((values, "s") if schema == "f142" else ("s", values)))).value


ARRAYS = {
    **dict.fromkeys(("da00", "ad00", "ADAr", "NDAr", "f142", "f144", "se00"), NUMBERS),
    "senv": WHOLE,
    "hs00": ["uint32", "uint64", "float32", "float64"],
    "hs01": ["int32", "int64", "float32", "float64"],
}


@pytest.mark.parametrize(("schema", "dtype"), [(schema, dtype) for schema, types in ARRAYS.items() for dtype in types])
def test_an_array_keeps_its_type(package, schema, dtype):
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    values = np.array([limits.min, limits.max, 1], dtype)
    found = through(package, schema, values)
    assert found.dtype == values.dtype and found.tolist() == values.tolist()


@pytest.mark.parametrize("schema", ["hs00", "hs01"])
@pytest.mark.parametrize("dtype", [">f4", ">f8", ">u4", ">i4"])
def test_a_histogram_of_another_byte_order_keeps_its_values(package, schema, dtype):
    if dtype[1] == "ui"[schema == "hs00"]:
        pytest.skip("of the other sign: the package writes what it cannot read")
    found = through(package, schema, np.array([1, 2, 3], dtype))
    assert found.tolist() == [1, 2, 3] and found.dtype == np.dtype(dtype).newbyteorder("=")


@pytest.mark.parametrize("schema", ["ad00", "ADAr", "da00", "se00", "senv"])
@pytest.mark.parametrize("dtype", ["bool", "float16", "complex128", ">i4", "datetime64[ns]", "U3"])
def test_an_array_of_a_type_that_no_message_has_is_a_key_error(package, schema, dtype):
    # An array of dates is refused by numpy's buffers before it is looked up.
    with pytest.raises((KeyError, TypeError) if schema in ("se00", "senv") else KeyError):
        through(package, schema, np.array([1, 0, 1]).astype(dtype))


@pytest.mark.parametrize("schema", ["f142", "f144"])
@pytest.mark.parametrize("value", [1j, ">i4", np.zeros((2, 2))], ids=["complex", "order", "2d"])
def test_a_value_that_no_message_has_is_not_implemented(package, schema, value):
    with pytest.raises(NotImplementedError):
        through(package, schema, np.array([1], value) if isinstance(value, str) else value)


@pytest.mark.parametrize("value", [1, 1.5, "text", [1, 2], [1.5, 2.5], ["a", "b"], np.arange(3)], ids=str)
def test_f142_takes_what_numpy_makes_of_a_value(package, value):
    if "f142" not in package.SERIALISERS:
        pytest.skip("no f142")
    found = through(package, "f142", value)
    assert np.array_equal(found, value)
    assert type(found) is (str if isinstance(value, str) else np.ndarray)


def variable_through(package, **given):
    module = importlib.import_module(f"{package.__name__}.dataarray_da00")
    return module.deserialise_da00(module.serialise_da00("s", 1, [module.Variable(name="x", **given)])).data[0]


@pytest.mark.parametrize("axes", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_da00_with_other_axes_than_its_array_has_keeps_both(package, axes):
    found = variable_through(package, data=np.ones((2, 3)), axes=axes)
    assert (found.axes, found.shape, found.data.shape) == (axes, (2, 3), (2, 3))


def test_da00_without_axes_has_one_dimension(package):
    found = variable_through(package, data=np.arange(6).reshape(2, 3))
    assert found.data.tolist() == [0, 1, 2, 3, 4, 5] and found.shape == (2, 3)


@pytest.mark.parametrize(("given", "wanted"), [(True, 1), (3, 3), (1.5, 1.5), ("x", "x"), (np.array([7]), 7)])
def test_da00_without_axes_of_one_thing_is_that_thing(package, given, wanted):
    found = variable_through(package, data=given).data
    assert found == wanted and type(found) is type(wanted)


def test_da00_says_how_it_would_write_a_value(package):
    module = importlib.import_module(f"{package.__name__}.dataarray_da00")
    given = [np.arange(3, dtype="int16"), "x", 1.5, 3, True]
    assert [module.get_dtype(one) for one in given] == [3, 11, 10, 7, 7]
    assert [module.to_buffer(one).nbytes for one in given] == [6, 1, 8, 8, 8]
    for function in (module.get_dtype, module.to_buffer):
        with pytest.raises(RuntimeError):
            function([1])
    with pytest.raises(KeyError):
        module.get_dtype(np.array([True]))


def test_da00_without_variables_or_of_something_else_is_a_runtime_error(package):
    module = importlib.import_module(f"{package.__name__}.dataarray_da00")
    with pytest.raises(RuntimeError):
        module.serialise_da00("s", 1, [])
    with pytest.raises(RuntimeError):
        module.Variable(name="x", data=[1, 2])


def test_a_text_may_be_given_as_its_bytes(package):
    for case, name in (("ev44", "source_name"), ("f144", "source_name"), ("x5f2", "host_name"), ("al00", "message")):
        given, _ = arguments(package, case)
        message = package.SERIALISERS[case](**given | {name: "grüezi".encode()})
        assert getattr(package.DESERIALISERS[case](message), name) == "grüezi"


@pytest.mark.parametrize("case", ["ev44", "f144", "x5f2", "al00", "pl72", "da00", "answ"])
def test_a_text_that_was_forgotten_is_a_type_error(package, case):
    given, _ = arguments(package, case)
    name = next(name for name, value in given.items() if isinstance(value, str))
    with pytest.raises(TypeError):
        package.SERIALISERS[case](**given | {name: None})


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1])
def test_a_number_that_is_too_large_is_a_type_error(package, number):
    for case in ("ev44", "al00", "da00", "ad00", "hs01"):
        given, _ = arguments(package, case)
        if case == "hs01":
            given = {"histogram": given["histogram"] | {"timestamp": number}}
        else:
            given |= {"message_id" if case == "ev44" else "timestamp_ns": number}
        with pytest.raises(TypeError):
            package.SERIALISERS[case](**given)


@pytest.mark.parametrize("missing", ["timestamp", "current_shape", "dim_metadata", "data"])
def test_a_histogram_without_what_it_must_have_is_a_key_error(package, missing):
    (given, _) = arguments(package, "hs01")
    histogram = {name: value for name, value in given["histogram"].items() if name != missing}
    with pytest.raises(KeyError):
        package.SERIALISERS["hs01"](histogram)


@pytest.mark.parametrize(("case", "name"), [("al00", "timestamp_ns"), ("x5f2", "process_id"), ("answ", "status_code")])
def test_a_whole_number_that_is_none_is_a_struct_error(package, case, name):
    given, _ = arguments(package, case)
    with pytest.raises(struct.error):
        package.SERIALISERS[case](**given | {name: 1.5})
