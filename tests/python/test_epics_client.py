"""The client of EPICS against servers of others: `python -m pvxslibs.ioc`, and p4p."""

import os
import socket
import threading

import epics_client as bp
import epics_servers
import numpy
import pytest
from epics_client import CA, PVA, Client
from epics_garbage import CaLiar
from signals import stop

epics_servers.need(bp.LIBRARY)

DATABASE = """
record(ao, "R:ao") { field(PINI,"YES") field(VAL,"2.5") field(EGU,"mm") field(HIGH,"2") field(HSV,"MINOR") }
record(ai, "R:ai") { field(PINI,"YES") field(INP,"-1e9") field(EGU,"K") }
record(longout, "R:longout") { field(PINI,"YES") field(VAL,"-7") field(EGU,"cts") }
record(longin, "R:longin") { field(PINI,"YES") field(INP,"123456") }
record(int64out, "R:int64out") { field(PINI,"YES") field(VAL,"5000000000") }
record(calc, "R:calc") { field(PINI,"YES") field(CALC,"6*7") }
record(stringout, "R:stringout") { field(PINI,"YES") field(VAL,"some text") }
record(stringin, "R:stringin") { field(PINI,"YES") field(DESC,"what it is") }
record(bo, "R:bo") { field(PINI,"YES") field(ZNAM,"closed") field(ONAM,"open") field(VAL,"1") }
record(mbbo, "R:mbbo") { field(PINI,"YES") field(ZRST,"a") field(ONST,"b") field(TWST,"c") field(VAL,"2") }
record(waveform, "R:CHAR") { field(PINI,"YES") field(FTVL,"CHAR") field(NELM,"100") field(INP,[1,2,-3]) }
record(waveform, "R:UCHAR") { field(PINI,"YES") field(FTVL,"UCHAR") field(NELM,"4") field(INP,[1,250]) }
record(waveform, "R:SHORT") { field(PINI,"YES") field(FTVL,"SHORT") field(NELM,"4") field(INP,[-5,6]) }
record(waveform, "R:USHORT") { field(PINI,"YES") field(FTVL,"USHORT") field(NELM,"4") field(INP,[5,60000]) }
record(waveform, "R:LONG") { field(PINI,"YES") field(FTVL,"LONG") field(NELM,"4") field(INP,[-70000]) }
record(waveform, "R:ULONG") { field(PINI,"YES") field(FTVL,"ULONG") field(NELM,"4") field(INP,[7,70000]) }
record(waveform, "R:INT64") { field(PINI,"YES") field(FTVL,"INT64") field(NELM,"4") field(INP,[1,-2]) }
record(waveform, "R:FLOAT") { field(PINI,"YES") field(FTVL,"FLOAT") field(NELM,"4") field(INP,[0.5,1.5,2.5]) }
record(waveform, "R:DOUBLE") { field(PINI,"YES") field(FTVL,"DOUBLE") field(NELM,"4") field(INP,[1e300]) }
record(waveform, "R:STRING") { field(PINI,"YES") field(FTVL,"STRING") field(NELM,"4") field(INP,["one","two"]) }
record(calc, "R:ramp") { field(INPA,"R:ramp") field(CALC,"A+1") field(SCAN,".1 second") }
record(ao, "R:written") { field(EGU,"V") }
"""
# What a client reads: the element type over pvAccess and over Channel Access, and the value.
READ = {
    "R:ao": ("f8", "f8", 2.5),
    "R:ai": ("f8", "f8", -1e9),
    "R:longout": ("i4", "i4", -7),
    "R:longin": ("i4", "i4", 123456),
    "R:int64out": ("i8", "f8", 5_000_000_000),
    "R:calc": ("f8", "f8", 42),
    "R:stringout": ("text", "text", "some text"),
    "R:stringin": ("text", "text", ""),
    "R:bo": ("choice", "choice", (1, "open")),
    "R:mbbo": ("choice", "choice", (2, "c")),
    "R:CHAR": ("i1", "u1", [1, 2, -3]),
    "R:UCHAR": ("u1", "u1", [1, 250]),
    "R:SHORT": ("i2", "i2", [-5, 6]),
    "R:USHORT": ("u2", "i4", [5, 60000]),
    "R:LONG": ("i4", "i4", [-70000]),
    "R:ULONG": ("u4", "f8", [7, 70000]),
    "R:INT64": ("i8", "f8", [1, -2]),
    "R:FLOAT": ("f4", "f4", [0.5, 1.5, 2.5]),
    "R:DOUBLE": ("f8", "f8", [1e300]),
    "R:STRING": ("text", "text", ["one", "two"]),
}


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """The records."""
    path = tmp_path_factory.mktemp("epics") / "records.db"
    path.write_text(DATABASE)
    return path


@pytest.fixture(scope="module")
def ioc(database):
    """An IOC with them."""
    with epics_servers.ioc(database) as server:
        yield server


@pytest.fixture(scope="module")
def structures():
    """What p4p serves."""
    with epics_servers.structures() as server:
        yield server


both = pytest.mark.parametrize("protocol", [PVA, CA], ids=["pva", "ca"])


def check_value(update, wanted, value, name):
    """That the update has the value in the type."""
    if wanted == "choice":
        assert (update.form, update.type, update.value[0], update.text) == (bp.ENUM, 3, *value), name
        return
    assert update.form == (bp.ARRAY if isinstance(value, list) else bp.SCALAR), name
    values = value if isinstance(value, list) else [value]
    if wanted == "text":
        assert update.value == values, name
    else:
        assert update.value.dtype == wanted, name
        assert update.value.tolist() == numpy.array(values).astype(wanted).tolist(), name


@both
def test_twenty_records_have_their_values_and_types(ioc, protocol):
    with Client(protocol, ioc.settings) as client:
        assert client.version.startswith("PVXS 1.5.3, EPICS 7.0.10")
        for number, name in enumerate(READ):
            client.add(number, name)
        found = client.values(range(len(READ)))
    found = dict(zip(READ, [found[number] for number in range(20)], strict=True))
    for name, (over_pva, over_ca, value) in READ.items():
        check_value(found[name], over_ca if protocol == CA else over_pva, value, name)
        assert found[name].changed == 15, name
        assert found[name].time[0] > 1_600_000_000, name
    assert [found[name].units for name in ("R:ao", "R:longout", "R:longin")] == ["mm", "cts", ""]
    assert found["R:ao"].severity == 1 and "HIGH" in found["R:ao"].alarm
    assert found["R:longout"].severity == 0
    if protocol == PVA:
        assert found["R:ao"].type_id == "epics:nt/NTScalar:1.0"


SCALARS = [
    ("?", "u1", 1),
    ("b", "i1", -5),
    ("B", "u1", 250),
    ("h", "i2", -3000),
    ("H", "u2", 60000),
    ("i", "i4", -70000),
    ("I", "u4", 4000000000),
    ("l", "i8", -(2**40)),
    ("L", "u8", 2**63 + 1),
    ("f", "f4", 0.5),
    ("d", "f8", 1e-300),
    ("s", "text", "word"),
]


def test_every_type_of_scalar(structures):
    with Client(PVA, structures.settings) as client:
        for number, (code, _, _) in enumerate(SCALARS):
            client.add(number, f"S:{code}")
        found = client.values(range(len(SCALARS)))
    for number, (code, wanted, value) in enumerate(SCALARS):
        check_value(found[number], wanted, value, code)


def test_arrays_of_strings_and_booleans_and_plain_structures(structures):
    with Client(PVA, structures.settings) as client:
        for number, pv in enumerate(["T:WORDS", "T:BOOLS", "T:PLAIN", "T:ENUM"]):
            client.add(number, pv)
        found = client.values(range(4))
    words, booleans, plain, enum = (found[number] for number in range(4))
    assert (words.form, words.value) == (bp.ARRAY, ["x", "", "yz"])
    assert (booleans.form, booleans.value.dtype, booleans.value.tolist()) == (bp.ARRAY, "u1", [1, 0])
    assert (plain.form, plain.value.dtype, plain.value.tolist()) == (bp.ARRAY, "i4", [3, 4])
    assert plain.type_id == "facility:plain/1.0"
    assert (enum.form, enum.value.tolist(), enum.text) == (bp.ENUM, [1], "on")


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_an_image_of_every_type(structures, dtype):
    with Client(PVA, structures.settings) as client:
        client.add(1, "T:IMAGE")
        client.values([1])
        structures.tell(f"image {dtype}")
        image = client.values([1], lambda update: update.unique_id == 77 and update.value.dtype == dtype)[1]
    assert (image.form, image.value.tolist(), image.dims) == (bp.IMAGE, [0, 1, 2, 3, 4, 5], [3, 2])
    assert image.time == (1_700_000_001, 5, 9)
    assert image.data_time == (1_700_000_000, 250)
    gain, mode, none = image.columns
    assert (gain[:3], gain[3].tolist()) == (("gain", "of the amplifier", "CAM:GAIN"), [2.5])
    assert (mode[0], mode[3]) == ("mode", ["fast"])
    assert (none[0], none[3]) == ("none", None)
    assert image.codec == ("", 12, 5)


def test_an_image_without_pixels_and_one_with_a_codec():
    with epics_servers.structures() as server, Client(PVA, server.settings) as client:
        client.add(1, "T:IMAGE")
        empty = client.values([1])[1]
        server.tell("image u1 lz4")
        packed = client.values([1], lambda update: update.unique_id == 77)[1]
    assert (empty.form, empty.type, empty.value, empty.dims) == (bp.IMAGE, 0, None, [])
    # The parameters of its codec say u16.
    assert packed.codec == ("lz4", 12, 6)


def test_a_table_has_its_columns(structures):
    with Client(PVA, structures.settings) as client:
        client.add(1, "T:TABLE")
        table = client.values([1])[1]
    assert (table.form, table.type_id) == (bp.TABLE, "epics:nt/NTTable:1.0")
    timestamp, word, value = table.columns
    assert (timestamp[0], timestamp[3].dtype, timestamp[3].tolist()) == ("timestamp", "u8", [11, 12])
    assert (word[0], word[3]) == ("word", ["a", "bcd"])
    assert (value[0], value[3].tolist()) == ("value", [0.5, 1.5])


def test_a_table_without_values_and_times_is_kept_as_it_came(structures):
    with Client(PVA, structures.settings) as client:
        client.add(1, "T:OTHER_TABLE")
        table = client.values([1])[1]
    assert (table.form, table.type_id, table.columns) == (bp.OTHER, "epics:nt/NTTable:1.0", [])
    content = table.value.tobytes()
    # The columns, each with its length and its elements.
    words, numbers = b"\x02\x01a\x03bcd", b"\x02" + numpy.array([0.5, 1.5]).tobytes()
    assert words + numbers in content and b"\x04word\x68" in content and b"\x01x\x4b" in content


def test_another_structure_keeps_type_and_value_in_the_encoding_of_pvaccess(structures):
    def text(of):
        return bytes([len(of)]) + of.encode()

    described = b"\x80" + text("facility:thing/1.0") + b"\x05"
    described += text("in") + b"\x80" + text("inner_t") + b"\x02" + text("x") + b"\x43" + text("names") + b"\x68"
    described += text("one") + b"\x81" + text("choice_t") + b"\x02" + text("number") + b"\x22" + text("word") + b"\x60"
    described += text("any") + b"\x82"
    described += text("many") + b"\x88\x80" + text("row_t") + b"\x01" + text("n") + b"\x21"
    described += text("ok") + b"\x00"
    content = bytes.fromhex("000000000000f83f") + b"\x02" + text("a") + text("bc")
    content += b"\x01" + text("yes")
    content += b"\x23" + (3).to_bytes(8, "little")
    content += b"\x02\x01\x01\x00\x01\x02\x00"
    content += b"\x01"
    with Client(PVA, structures.settings) as client:
        client.add(1, "T:THING")
        thing = client.values([1])[1]
    assert (thing.form, thing.type_id) == (bp.OTHER, "facility:thing/1.0")
    assert thing.value.tobytes() == described + content


def test_a_change_of_alarm_alone_keeps_the_value(structures):
    with Client(PVA, structures.settings) as client:
        client.add(1, "T:RAMP")
        before = client.values([1])[1]
        structures.tell("alarm")
        after = client.values([1], lambda update: update.severity == 2)[1]
    assert after.value.tolist() == before.value.tolist()
    assert (after.alarm, after.status) == ("too hot", 3)
    assert after.changed == bp.CHANGED_ALARM


@both
def test_a_long_string_is_an_array_of_characters(ioc, protocol):
    with Client(protocol, ioc.settings) as client:
        client.add(1, "R:stringin.DESC$")
        found = client.values([1])[1]
    assert found.form == bp.ARRAY and bytes(found.value).rstrip(b"\0") == b"what it is"


@both
@pytest.mark.parametrize("by_name_server", [False, True], ids=["search", "name server"])
def test_a_server_that_is_killed_and_comes_back_needs_nobody(database, protocol, by_name_server):
    own = epics_servers.environment()
    port = own["EPICS_PVAS_SERVER_PORT" if protocol == PVA else "EPICS_CAS_SERVER_PORT"]
    addresses = {"addresses": "", "name_servers": f"127.0.0.1:{port}"} if by_name_server else {}
    with epics_servers.ioc(database, own) as server, Client(protocol, own, **addresses) as client:
        assert {name: value for name, value in os.environ.items() if name.startswith("EPICS_")} == own
        client.add(1, "R:ramp")
        client.add(2, "R:longout")
        first = client.until(lambda updates: sum(u.what == bp.VALUE for u in updates) >= 5)
        assert [u.what for u in first if u.id == 2][:2] == [bp.CONNECTED, bp.VALUE]
        server.kill()
        client.until(lambda updates: {u.id for u in updates if u.what == bp.DISCONNECTED} == {1, 2})
        with epics_servers.ioc(database, own):
            again = client.until(lambda updates: {u.id for u in updates if u.what == bp.VALUE} == {1, 2})
    for number in (1, 2):
        mine = [update for update in again if update.id == number]
        assert [u.what for u in mine][:2] == [bp.CONNECTED, bp.VALUE]
        assert mine[1].changed == 15


def test_a_pv_that_changes_its_type_goes_on():
    found = []
    own = epics_servers.environment()
    with Client(PVA, own) as client:
        client.add(1, "C:VALUE")
        for kind in ("double", "string", "array"):
            with epics_servers.structures(kind, own):
                found.append(client.values([1])[1])
            client.until(lambda updates: any(u.what == bp.DISCONNECTED for u in updates))
    double, string, array = found
    assert (double.form, double.value.tolist()) == (bp.SCALAR, [1.5])
    assert (string.form, string.value) == (bp.SCALAR, ["text"])
    assert (array.form, array.value.tolist()) == (bp.ARRAY, [1, 2])


def test_what_a_server_refuses_or_ends_is_subscribed_again():
    server = epics_servers.Refusing(2)
    with Client(PVA, epics_servers.environment(), addresses="", name_servers=f"127.0.0.1:{server.port}") as client:
        client.add(1, "X:Y")
        said = client.until(lambda updates: sum(u.what == bp.VALUE for u in updates) == 2)
    server.close()
    refused = [bp.CONNECTED, bp.REFUSED]
    assert [u.what for u in said] == [*refused, *refused, bp.CONNECTED, bp.VALUE, bp.FINISHED, bp.CONNECTED, bp.VALUE]
    assert said[1].text == "not before noon"
    assert said[-1].value.tolist() == [7]


def follow(updates, number):
    """The values of a ramp, each checked against the one before and what was overwritten between."""
    values, squashed, last = 0, 0, None
    between = 0
    for update in updates:
        if update.id != number:
            continue
        if update.what == bp.SQUASHED:
            assert between == 0, "two counts without an update between them"
            between = update.count
        elif update.what == bp.VALUE:
            now = update.value[0]
            assert last is None or now == last + between + 1
            squashed += between
            values, between, last = values + 1, 0, now
    assert between == 0
    return values, squashed, last


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_what_a_starved_reader_loses_is_counted_exactly(most):
    with epics_servers.structures() as server, Client(PVA, server.settings, queue_bytes=30_000) as client:
        client.add(1, "T:RAMP", queue=3000)
        client.add(2, "T:OTHER_RAMP", queue=3000)
        early = client.until(lambda updates: {u.id for u in updates if u.what == bp.VALUE} == {1, 2})
        server.tell("ramp 1000")
        # Its last values have come once nothing more is overwritten.
        client.add(3, "T:WORDS")

        def last(number):
            counts = client.counts(number)
            return counts.updates + counts.client_squash + counts.waiting

        while last(1) < 1001 or last(2) < 1001:
            assert client.readable(bp.HANG_S)
        waiting = [client.counts(number).waiting for number in (1, 2)]
        late = early + client.until(lambda updates: sum(u.id == 3 and u.what == bp.VALUE for u in updates), most)
        counts = [client.counts(number) for number in (1, 2)]
    for number in (1, 2):
        values, squashed, newest = follow(late, number)
        assert newest == 1000
        assert squashed > 500
        assert values + squashed == 1001
        mine = counts[number - 1]
        assert (mine.updates, mine.client_squash, mine.waiting, mine.server_squash) == (values, squashed, 0, 0)
        assert waiting[number - 1] >= 1


def test_images_that_wait_are_bounded_and_whole():
    with epics_servers.structures() as server, Client(PVA, server.settings, queue_bytes=400_000) as client:
        client.add(1, "T:IMAGE", queue=100)
        client.values([1])
        server.tell("pixels 50 100000")
        while (counts := client.counts(1)).client_squash + counts.waiting < 50:
            assert client.readable(bp.HANG_S)
        assert counts.waiting <= 4
        updates = client.until(lambda updates: any(u.unique_id == 50 for u in updates))
    images = [update for update in updates if update.what == bp.VALUE]
    assert sum(u.count for u in updates if u.what == bp.SQUASHED) + len(images) == 50
    for image in images:
        assert len(image.value) == 100_000 and (image.value == image.unique_id).all()


@both
def test_put_is_answered_and_seen(ioc, protocol):
    with Client(protocol, ioc.settings) as client:
        client.add(1, "R:written")
        client.values([1])
        for value in (3.5, numpy.int32(-4), "7.25"):
            client.put("R:written", value)
            client.values([1], lambda update, value=value: update.value[0] == float(value))
        # Not subscribed: the channel is opened for it.
        client.add(2, "R:mbbo")
        client.put("R:mbbo", "b")
        assert client.values([2], lambda update: update.value[0] == 1)[2].text == "b"
        client.put("R:mbbo", "0")
        client.values([2], lambda update: update.value[0] == 0)
        client.put("R:mbbo", 2)
        client.values([2], lambda update: update.value[0] == 2)
        client.add(3, "R:DOUBLE")
        client.put("R:DOUBLE", [1.5, 2.5])
        client.values([3], lambda update: update.value.tolist() == [1.5, 2.5])
        client.put("R:DOUBLE", [1e300])
        client.put("R:STRING", ["three", "four"])
        client.put("R:STRING", ["one", "two"])
        client.put("R:stringout", "other text")
        client.put("R:stringout", "some text")


@both
def test_put_says_why_it_fails(ioc, protocol):
    with Client(protocol, ioc.settings) as client:
        for pv, value, over_pva, over_ca in [
            ("R:mbbo", "no such choice", 'no choice "no such choice"', "write request failed"),
            ("R:written", "no number", 'a number, not "no number"', 'a number, not "no number"'),
            ("R:longout", "2.5", 'a whole number, not "2.5"', 'a whole number, not "2.5"'),
            ("R:longout", "3000000000", "out of the range", "out of the range"),
            ("R:mbbo", "3000000000", 'no choice "3000000000"', "write request failed"),
            ("R:longout", 1e12, "out of the range", "out of the range"),
            ("R:longout", [1, 2], "one value, not an array", "one value, not an array"),
            ("R:LONG", [1.0] * 1000, None, "fewer elements"),
            ("R:stringout", 1.5, "a string, not a number", None),
            ("R:stringout", "x" * 40, None, "at most 39 bytes"),
            ("NOBODY:SERVES:THIS", 1.0, "no server", "no server"),
        ]:
            why = over_ca if protocol == CA else over_pva
            if why is not None:
                with pytest.raises(RuntimeError, match=why):
                    client.put(pv, value, seconds=2.0)


def test_put_of_every_type_over_pvaccess():
    with epics_servers.structures() as server, Client(PVA, server.settings) as client:
        for number, (code, wanted, value) in enumerate(SCALARS):
            client.add(number, f"S:{code}")
            for new in ("other", value) if wanted == "text" else (1, value):
                client.put(f"S:{code}", new if wanted == "text" else numpy.array(new)[()])
                client.values([number], lambda update, new=new: update.value[0] == new)
        for number, pv, value in [
            (20, "T:WORDS", ["a", "", "c"]),
            (21, "T:BOOLS", [0, 1, 1]),
            (22, "T:PLAIN", [7, -8, 9]),
            (23, "T:BOOLS", []),
        ]:
            client.add(number, pv)
            client.put(pv, value)
            client.values([number], lambda update, value=value: list(update.value) == value)
        client.add(30, "T:ENUM")
        client.put("T:ENUM", "off")
        client.values([30], lambda update: update.text == "off")
        for pv in ("T:TABLE", "T:IMAGE"):
            with pytest.raises(RuntimeError, match="structures cannot be written"):
                client.put(pv, 1.0)
        with pytest.raises(RuntimeError, match="no field `value`"):
            client.put("T:THING", 1.0)


def test_a_text_is_read_as_the_type_of_the_pv_asks():
    with epics_servers.structures() as server, Client(PVA, server.settings) as client:
        for number, (code, text, wanted) in enumerate(
            [
                *(("?", "true", True), ("?", "0", False), ("b", "-128", -128), ("B", "255", 255)),
                *(("l", str(-(2**63)), -(2**63)), ("L", str(2**64 - 1), 2**64 - 1), ("d", "1e-310", 1e-310)),
                *(("f", "0.25", 0.25), ("s", "12", "12")),
            ]
        ):
            client.add(number, f"S:{code}")
            client.put(f"S:{code}", text)
            client.values([number], lambda update, wanted=wanted: update.value[0] == wanted)
        for code, text, why in [
            *(("b", "300", "out of the range"), ("B", "-1", "out of the range"), ("L", str(2**64), "out of the range")),
            *(("d", "1e400", "out of the range"), ("i", "1e3", "a whole number"), ("?", "maybe", "a whole number")),
            *(("h", "", "a whole number"), ("d", "1 K", "a number")),
        ]:
            with pytest.raises(RuntimeError, match=why):
                client.put(f"S:{code}", text)


def written(client, tag):
    """The answer to the write with this tag."""
    found = client.until(lambda updates: any(u.what == bp.WRITTEN and u.time[2] == tag for u in updates))
    assert all(update.what == bp.WRITTEN for update in found)
    return found[-1]


@both
def test_a_write_that_is_begun_is_answered_later(ioc, protocol):
    with Client(protocol, ioc.settings) as client:
        # With a queue of 0 the connection alone is watched.
        client.add(1, "R:longout", queue=0)
        client.add(2, "R:LONG", queue=0)
        client.until(lambda updates: [u.what for u in updates if u.what != bp.DISCONNECTED] == [bp.CONNECTED] * 2)
        client.put_start(1, -7, 1)
        answer = written(client, 1)
        assert (answer.status, answer.text) == (0, "")
        client.put_start(2, [-70000], 2)
        assert written(client, 2).status == 0
        for tag, value, why in [(3, 1e12, "out of the range"), (4, "no number", "a whole number")]:
            # Over pvAccess the type is known with the answer; over Channel Access at once.
            with pytest.raises(RuntimeError, match=why):
                client.put_start(1, value, tag)
                answer = written(client, tag)
                assert answer.status == 1
                raise RuntimeError(answer.text)
        for number in (3, 4):
            with pytest.raises(RuntimeError, match="number"):
                client.put_start(number, 1, 5)


@both
def test_a_write_ends_with_the_server_and_goes_to_the_next(tmp_path, protocol):
    database = tmp_path / "one.db"
    database.write_text('record(ao, "W:ao") { field(PINI,"YES") }')
    server = epics_servers.ioc(database)
    with Client(protocol, server.settings) as client:
        client.add(1, "W:ao", queue=0)
        for tag in (1, 2):
            client.until(lambda updates: any(u.what == bp.CONNECTED for u in updates))
            client.put_start(1, 1.5, tag)
            assert written(client, tag).status == 0
            stop(server.process.pid)
            client.put_start(1, 2.5, tag + 10)
            server.kill()
            found = client.until(lambda updates: {u.what for u in updates} == {bp.WRITTEN, bp.DISCONNECTED})
            (answer,) = (update for update in found if update.what == bp.WRITTEN)
            assert (answer.status, answer.time[2]) == (2, tag + 10) and answer.text
            server = epics_servers.ioc(database, server.settings)
    server.kill()


@both
def test_a_removed_pv_says_nothing_more(ioc, protocol):
    with Client(protocol, ioc.settings) as client:
        client.add(1, "R:ramp")
        client.add(2, "R:ramp")
        with pytest.raises(RuntimeError, match="number"):
            client.add(2, "R:longout")
        client.values([1, 2])
        client.readable(bp.HANG_S)
        client.remove(1)
        assert client.counts(1) is None
        later = client.until(lambda updates: sum(u.what == bp.VALUE for u in updates) >= 5)
        assert {update.id for update in later} == {2}
        # The number is free again.
        client.add(1, "R:longout")
        assert client.values([1])[1].value.tolist() == [-7]


@both
def test_a_server_that_sends_garbage_harms_nobody(ioc, protocol):
    sent = 0

    def serve(listener):
        nonlocal sent
        while True:
            try:
                peer = listener.accept()[0]
            except OSError:
                return
            with peer:
                sent += 1
                try:
                    peer.sendall(numpy.random.default_rng(sent).bytes(4096))
                except OSError:
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=[listener])
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Client(protocol, ioc.settings, addresses="127.0.0.1", name_servers=address) as client:
            client.add(1, "R:longout")
            assert client.values([1])[1].value.tolist() == [-7]
            while sent == 0:
                client.readable(0.1)
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_channel_access_server_that_lies_ends_its_own_connection_and_no_more(ioc):
    liar = CaLiar(1)
    addresses = f"127.0.0.1:{ioc.settings['EPICS_CA_SERVER_PORT']} 127.0.0.1:{liar.search_port}"
    with Client(CA, ioc.settings, addresses=addresses) as client:
        # The first channel of a client has the number 0, of which the liar speaks.
        client.add(0, "R:ramp")
        client.values([0])
        for number in range(1, 50):
            client.add(number, f"G:{number}")
        said = client.until(lambda updates: len({u.id for u in updates if u.id and u.what == bp.DISCONNECTED}) == 49)
        for number in range(1, 50):
            client.remove(number)
        said += client.until(lambda updates: sum(u.what == bp.VALUE for u in updates) > 5)
        assert all(update.what == bp.VALUE for update in said if update.id == 0)
    liar.kill()


def test_a_missing_library_fails_in_check_and_leaves_tests_out_elsewhere(monkeypatch, tmp_path):
    for check, raised in (("1", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("BEAMPORT_CHECK", check)
        with pytest.raises(raised, match="nothing.so"):
            epics_servers.need(tmp_path / "nothing.so")
