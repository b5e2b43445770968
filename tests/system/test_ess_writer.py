"""`beamport ess writer` in the place of the file writer of ESS: its jobs and answers, whoever is killed meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from datetime import datetime
from pathlib import Path

import h5py
import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from conftest import HANG_S, until
from ess_facility import Facility, now_ms, structure
from kafka_node import Node, compacted
from stream_files import streams
from streaming_data_types import serialise_6s4t, serialise_f144, serialise_pl72
from test_full_disk import Disk

pytestmark = pytest.mark.services


def test_a_live_job_is_started_and_stopped(facility):
    writer = facility.writer()
    began = now_ms()
    job = facility.start("live.nxs", began)
    facility.accepted(job)
    times = facility.send(50, now_ms() - 100)
    status = until(
        lambda: next(
            (
                s
                for s in (json.loads(x.status_json) for x in facility.all(b"x5f2", facility.control))
                if s["topics"][facility.topic]["messages"] == 100
            ),
            None,
        ),
        facility.said,
    )
    assert (status["state"], status["job_id"], status["file_being_written"]) == ("writing", job, "live.nxs")
    assert (status["start_time"], status["stop_time"]) == (began, 0)
    stopped = now_ms()
    command = facility.stop(job, stopped)
    assert facility.answer(command).status_code == 201
    wrdn, message = facility.finished(job)
    print(f"6s4t to wrdn: {now_ms() - stopped} ms")
    assert wrdn.file_name == str(facility.files / "live.nxs")
    assert json.loads(wrdn.metadata) == {"proposal": "live.nxs", "text": 'ü"\\'}
    assert message["topics"][facility.topic]["messages"] == 100 and message["lost"] == []
    facility.whole("live.nxs", times)
    # On the control topic: the start again, the answer, a status, ..., the outcome, and nothing behind it.
    heard = [which for where, which, _ in facility.heard if where == facility.control]
    assert heard[:3] == [b"pl72", b"answ", b"x5f2"] and heard[-1] == b"wrdn"
    facility.idle()
    facility.end(writer)


def test_the_outcome_names_the_file_with_the_prefix_as_it_was_given(facility):
    facility.writer("--hdf-output-prefix", facility.files.name)
    start = now_ms() - 1000
    wrdn, _ = facility.finished(facility.start("a/b.nxs", start, start + 10))
    assert wrdn.file_name == "files/a/b.nxs" and (facility.files / "a/b.nxs").exists()


def test_no_status_comes_between_the_answer_of_a_stop_and_the_outcome(facility):
    facility.writer("--time-after-stop", "3s", interval="8s")
    job = facility.start("quiet.nxs")
    facility.accepted(job)
    until(facility.told, facility.said)
    # The next status is due while the job waits for what is late.
    time.sleep(6.5)
    assert facility.answer(facility.stop(job)).status_code == 201
    facility.finished(job)
    heard = [which for where, which, _ in facility.heard if where == facility.control]
    assert heard[-3:] == [b"6s4t", b"answ", b"wrdn"], heard


def test_the_status_of_a_job_does_not_stop_after_seventeen_messages(facility):
    facility.writer(interval="20ms")
    job = facility.start("long.nxs")
    facility.accepted(job)
    until(lambda: len(facility.told()) > 50, lambda: f"{len(facility.told())} came: {facility.said()}")
    facility.stop(job)
    facility.finished(job)


def test_an_idle_writer_takes_the_job_of_a_dead_one(facility):
    first = facility.writer()
    start = now_ms()
    job = facility.start("taken.nxs", start)
    facility.accepted(job)
    facility.writer()
    sent = facility.send(20, start)
    # What no module of the structure takes is counted.
    facility.kafka.send([(facility.topic, 1, serialise_f144("nobody", 1.0, sent[0] + n)) for n in range(7)])
    facility.lab.kill(first)
    before = len(facility.all(b"x5f2", facility.control))

    def aside() -> bool:
        told = [json.loads(x.status_json) for x in facility.all(b"x5f2", facility.control)[before:]]
        return any(status["topics"][facility.topic]["aside"] == 7 for status in told)

    until(aside, facility.said)
    facility.stop(job)
    _, message = facility.finished(job)
    assert sum(message["aside"].values()) == 7
    facility.whole("taken.nxs", sent)
    facility.idle()


def test_both_times_of_a_job_may_be_past(facility):
    start = now_ms() - 100_000
    times = facility.send(100, start)
    facility.writer()
    job = facility.start("past.nxs", start + 20, start + 59)
    wrdn, message = facility.finished(job)
    assert message["lost"] == [] and message["blake3"]
    # Its stop is inclusive, and the last value from before its start is there.
    with h5py.File(wrdn.file_name) as file:
        assert sorted(file["entry/bank/event_time_zero"][:].tolist()) == times[20:60]
        assert sorted(file["entry/temperature/time"][:].tolist()) == times[19:60]
    facility.idle()


def test_a_structure_without_a_stream_is_written(facility):
    facility.writer()
    entry = structure(facility.topic)["children"][0]
    title = {"module": "dataset", "config": {"name": "title", "values": "static", "dtype": "string"}}
    times = {"module": "mdat", "config": {"items": ["start_time", "end_time"]}}
    without = json.dumps({"children": [entry | {"children": [title, times]}]})

    def written(start: int, stop: int):
        wrdn, message = facility.finished(job)
        assert message["lost"] == [] and message["topics"] == {} and message["blake3"]
        with h5py.File(wrdn.file_name) as file:
            assert file["entry/title"][()] == b"static"
            found = [file[f"entry/{word}_time"][()].decode() for word in ("start", "end")]
            assert [datetime.fromisoformat(text).timestamp() for text in found] == [start / 1000, stop / 1000]
            assert file["entry/beamport/closed"][()] == 1

    start = now_ms()
    job = facility.start("live.nxs", start, nexus_structure=without)
    facility.accepted(job)
    until(lambda: (facility.files / "live.nxs").exists(), facility.said)
    assert facility.answer(facility.stop(job, start + 20)).status_code == 201
    written(start, start + 20)
    job = facility.start("past.nxs", start - 5000, start - 1000, nexus_structure=without)
    written(start - 5000, start - 1000)
    # Its processes are killed while it is open.
    job = facility.start("killed.nxs", start, nexus_structure=without)
    facility.accepted(job)
    until(lambda: facility.processes("write"), facility.said)
    facility.lab.kill(facility.writers[-1])
    facility.writer(ready=False)
    assert facility.answer(facility.stop(job, start + 30)).status_code == 201
    written(start, start + 30)
    facility.idle()


def test_a_compacted_topic_in_which_the_search_by_time_finds_nothing_is_read_from_its_first_message(facility):
    topic, start, times = compacted(facility.kafka, f"{facility.topic}_compacted")
    log = structure(topic)["children"][0]["children"][1]
    facility.writer()
    text = json.dumps({"children": [structure(topic)["children"][0] | {"children": [log]}]})
    wrdn, message = facility.finished(facility.start("old.nxs", start + 15_000, start + 50_000, nexus_structure=text))
    assert message["lost"] == []
    with h5py.File(wrdn.file_name) as file:
        assert file["entry/temperature/time"][:].tolist() == [at * 1_000_000 for at in times]


def test_a_job_may_start_in_the_future_and_stop_by_a_moved_stop(facility):
    # Time to send a stop after the stop.
    facility.writer(after_stop="5s")
    start = now_ms() + 1500
    job = facility.start("future.nxs", start, start + 60_000)
    assert facility.accepted(job).stop_time.timestamp() * 1000 == start + 60_000
    before = facility.send(10, start - 500)
    times = facility.send(40, start)
    until(lambda: now_ms() > start + 50, "time stands still")
    # Moved twice; the last one that had not passed counts.
    for stop in (start + 50_000, now_ms() + 300):
        assert facility.answer(facility.stop(job, stop)).status_code == 201
    until(lambda: now_ms() > stop + 50, "time stands still")
    late = facility.answer(facility.stop(job, stop + 10_000))
    assert late.status_code == 500 and "passed" in late.message
    wrdn, _ = facility.finished(job)
    with h5py.File(wrdn.file_name) as file:
        assert sorted(file["entry/bank/event_time_zero"][:].tolist()) == times
        assert sorted(file["entry/temperature/time"][:].tolist()) == before[-1:] + times


def test_a_stop_of_a_job_that_had_just_ended_was_not_answered(facility):
    facility.writer()
    start = now_ms()
    facility.send(5, start - 100)
    job = facility.start("ended.nxs", start - 1000, start)
    facility.finished(job)
    late = facility.answer(facility.stop(job))
    assert late.status_code == 400 and "has ended" in late.message
    # The next job reads the control topic again, and does not answer for the one before.
    facility.finished(facility.start("next.nxs", start - 1000, start))
    assert [a.status_code for a in facility.all(b"answ") if a.command_id == late.command_id] == [400]


def test_the_program_that_writes_files_got_the_passwords_of_kafka(facility):
    facility.writer("-X", "sasl.password", "hunter2")
    start = now_ms()
    job = facility.start("secret.nxs", start)
    facility.accepted(job)
    facility.send(5, start)
    until(lambda: facility.processes("write"), facility.said)
    environment = {
        verb: [Path(f"/proc/{pid}/environ").read_bytes() for pid in facility.processes(verb)]
        for verb in ("up", "write")
    }
    assert b"hunter2" in environment["up"][0]
    assert environment["write"] and not any(b"hunter2" in text for text in environment["write"])
    facility.stop(job)
    facility.finished(job)


def test_a_topic_that_may_be_described_and_not_read_was_accepted(lab, nexus, tmp_path):
    (tmp_path / "kafka").mkdir()
    node = Node(tmp_path / "kafka")
    with node.properties.open("a") as properties:
        # Nobody has all rights.
        properties.write("super.users=\nallow.everyone.if.no.acl.found=true\n")
    node.format()
    node.start()
    facility = Facility(lab, node, "described")
    try:
        rule = (ResourceType.TOPIC, facility.topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
        allowed = AclBinding(*rule, AclOperation.DESCRIBE, AclPermissionType.ALLOW)
        for answer in node.admin.create_acls([allowed]).values():
            answer.result(HANG_S)
        facility.writer()
        refused = facility.answer(facility.start("secret.nxs"))
        assert refused.status_code == 400 and "may not read it" in refused.message
        assert facility.topic in refused.message and "allow this user" in refused.message
    finally:
        facility.close()
        node.kill()


def test_a_stop_that_was_sent_before_the_job_began_counts(facility):
    # The group notes where it begins.
    facility.end(facility.writer())
    start = now_ms()
    times = facility.send(20, start)
    job = facility.start("queued.nxs", start)
    until(lambda: now_ms() > start + 30, "time stands still")
    command = facility.stop(job)
    other = facility.stop(str(uuid.uuid4()))
    facility.writer()
    facility.finished(job)
    assert facility.answer(command).status_code == 201
    facility.whole("queued.nxs", times)
    # That of another job was sent before this one was accepted: it is for nobody here.
    assert [a for a in facility.all(b"answ") if a.command_id == other] == []


def test_stops_that_are_wrong_are_refused_and_the_job_goes_on(facility):
    facility.writer()
    job = facility.start("wrong-stop.nxs")
    facility.accepted(job)
    wrong = facility.answer(facility.stop(str(uuid.uuid4())))
    assert wrong.status_code == 400 and job in wrong.message
    assert facility.answer(facility.stop(job, command="not a uuid")).status_code == 400
    assert facility.answer(facility.stop(job)).status_code == 201
    facility.finished(job)


def test_a_refusal_lists_every_mistake_on_both_topics(facility):
    facility.writer()
    wrong = structure(facility.topic)
    (entry,) = wrong["children"]
    entry["children"][0]["children"][0]["config"] |= {"topic": "nowhere"}
    entry["children"][1]["children"][0]["config"] |= {"dtype": "dubble"}
    job = facility.start("../out.nxs", nexus_structure=json.dumps(wrong), job_id="no-uuid")
    answer = facility.answer("no-uuid")
    assert answer.status_code == 400 and "job_id" in answer.message and "filename" in answer.message
    job = facility.start("wrong.nxs", nexus_structure=json.dumps(wrong))
    answer = facility.answer(job)
    assert answer.status_code == 400 and "nowhere" in answer.message and "dubble" in answer.message, answer.message
    until(lambda: [a for a in facility.all(b"answ", facility.status) if a.command_id == job], facility.said)
    assert list(facility.files.iterdir()) == []
    facility.idle()


def test_a_known_job_and_a_taken_name_are_refused(facility):
    facility.writer()
    job = facility.start("known.nxs")
    facility.accepted(job)
    facility.stop(job)
    facility.finished(job)
    taken = facility.start("known.nxs")
    answer = facility.answer(taken)
    assert answer.status_code == 400 and "exists" in answer.message
    # The same command again, by two writers that share a folder.
    facility.writer()
    twice = facility.start("twice.nxs")
    facility.accepted(twice)
    facility.start("other.nxs", job_id=twice)
    until(lambda: len([a for a in facility.all(b"answ", facility.control) if a.job_id == twice]) == 2, facility.said)
    assert [a.status_code for a in facility.all(b"answ", facility.control) if a.job_id == twice] == [201, 400]
    facility.stop(twice)
    facility.finished(twice)
    assert sorted(path.name for path in facility.files.iterdir()) == ["known.nxs", "twice.nxs"]


def kill(pid: int):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def test_a_writer_that_is_killed_before_it_answers_answers_after_its_restart(facility, times, dice):
    kills = times(3, 30)
    writer = facility.writer()
    before = []
    for n in range(kills):
        start = now_ms()
        sent = facility.sent
        job = facility.start(f"{n}.nxs", start)
        until(lambda job=job: (facility.data / "jobs" / job).exists(), facility.said)
        time.sleep(dice.choice([0, 0.002, 0.01]))
        facility.lab.kill(writer)
        data = facility.send(10, start)
        writer = facility.writer(ready=False)
        facility.accepted(job)
        facility.stop(job)
        facility.finished(job)
        facility.whole(f"{n}.nxs", data, sent, before)
        before = data[-1:]
    facility.idle()
    print(f"service killed at the acceptance of a job: {kills} kills injected, 0 jobs lost")


def test_a_job_is_whole_though_its_processes_are_killed(facility, times, dice):
    writer = facility.writer()
    start = now_ms()
    job = facility.start("killed.nxs", start)
    facility.accepted(job)
    sent, killed = [], {"service": 0, "up": 0, "write": 0}
    for n in range(times(9, 300)):
        sent += facility.send(10, max(now_ms(), start + 10 * n))
        which = ("service", "up", "write")[n % 3]
        if which == "service":
            facility.lab.kill(writer)
            writer = facility.writer(ready=False)
        else:
            (pid,) = until(lambda which=which: facility.processes(which), facility.said)
            kill(pid)
        killed[which] += 1
        time.sleep(dice.uniform(0, 0.3))
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    assert facility.answer(facility.stop(job)).status_code == 201
    _, message = facility.finished(job)
    assert message["lost"] == []
    facility.whole("killed.nxs", sent)
    facility.idle()
    print(f"processes of a job killed: {killed} injected, 0 lost and 0 twice of {len(sent)} events and values")


def test_sigterm_leaves_the_job_and_sighup_waits_for_its_end(facility):
    writer = facility.writer()
    start = now_ms()
    job = facility.start("signals.nxs", start)
    facility.accepted(job)
    sent = facility.send(20, start)
    facility.end(writer)
    assert not (facility.processes("up") or facility.processes("write"))
    sent += facility.send(20, max(now_ms(), start + 20))
    writer = facility.writer()
    writer.send_signal(signal.SIGHUP)
    sent += facility.send(20, max(now_ms(), start + 40))
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    assert writer.poll() is None
    facility.stop(job)
    facility.finished(job)
    assert writer.wait(HANG_S) == 0
    facility.whole("signals.nxs", sent)
    assert list((facility.data / "jobs").iterdir()) == []


def test_malformed_commands_are_answered_and_the_next_job_is_written(facility, times, dice):
    facility.writer()
    good = serialise_pl72(
        str(uuid.uuid4()), "x.nxs", 0, nexus_structure=json.dumps(structure(facility.topic)), control_topic="nowhere"
    )
    stop = serialise_6s4t(str(uuid.uuid4()), command_id=str(uuid.uuid4()))

    def spoiled(message: bytes) -> bytes:
        message = bytearray(message)
        for _ in range(dice.randint(1, 4)):
            message[dice.randrange(len(message))] = dice.randrange(256)
        return bytes(message[: dice.randrange(len(message) + 1)] if dice.random() < 0.5 else message)

    deep = serialise_pl72(
        str(uuid.uuid4()), "deep.nxs", 0, nexus_structure="[" * 100_000, control_topic=facility.control
    )
    strange = [b"", b"\0" * 8, dice.randbytes(1000), serialise_f144("x", 1, 1), deep, good[:8]]
    count = times(100, 20_000)
    facility.kafka.send([(facility.pool, 0, m) for m in strange + [spoiled(good) for _ in range(count)]])
    job = facility.start("good.nxs")
    facility.accepted(job)
    facility.kafka.send([(facility.control, 0, m) for m in strange + [spoiled(stop) for _ in range(count)]])
    facility.stop(job)
    facility.finished(job)
    outcomes = [a.status_code for a in facility.all(b"answ", facility.status)]
    assert set(outcomes) == {400}
    # Each message before the job was answered or counted.
    told = json.loads(facility.all(b"x5f2", facility.control)[0].status_json)
    assert (told["refused"], told["refused"] + told["ignored"]) == (len(outcomes), len(strange) + count)
    assert [path.name for path in facility.files.iterdir()] == ["good.nxs"]
    assert sorted(
        path.name for path in facility.lab.folder.iterdir() if not path.name.startswith(("out-", "err-"))
    ) == [
        "files",
        "writer",
    ]
    print(f"malformed commands: {2 * count} injected, {len(outcomes)} starts refused, 0 bytes outside of the prefix")


def test_a_job_begins_anew_after_the_machine_was_started_again(facility):
    writer = facility.writer()
    start = now_ms()
    job = facility.start("boot.nxs", start)
    facility.accepted(job)
    sent = facility.send(20, start)
    folder = facility.data / "jobs" / job
    # The service has seen the file, and knows it by this record.
    until(lambda: json.loads((folder / "job.json").read_text()).get("file"), facility.said)
    facility.end(writer)
    record = json.loads((folder / "job.json").read_text())
    assert record["restarts"] == 0
    # What a power cut leaves: another boot, and nothing in shared memory.
    (folder / "job.json").write_text(json.dumps(record | {"boot": "another"}))
    for stream in streams(folder / "streams", True):
        shutil.rmtree(stream.live)
    facility.writer()
    facility.stop(job)
    _, message = facility.finished(job)
    assert message["lost"] == []
    facility.whole("boot.nxs", sent)
    facility.idle()


@pytest.mark.parametrize(
    ("name", "text"),
    [("job.json", b""), ("job.json", b"{"), ("command.pl72", b"\0" * 40)],
    ids=["empty", "cut", "command"],
)
def test_a_job_whose_record_or_command_is_damaged_is_answered(facility, name, text):
    writer = facility.writer()
    job = facility.start("damaged.nxs")
    facility.accepted(job)
    folder = facility.data / "jobs" / job
    # Its answer is delivered.
    until(lambda: json.loads((folder / "job.json").read_text())["step"] == "running", facility.said)
    facility.lab.kill(writer)
    (folder / name).write_bytes(text)
    facility.writer()
    wrdn, message = facility.finished(job, is_error=True)
    assert "cannot be read" in message["error"] and "send the job again" in message["error"]
    if name == "job.json":
        assert wrdn.file_name == str(facility.files / "damaged.nxs") and json.loads(wrdn.metadata)
    facility.idle()
    # The service serves others.
    start = now_ms()
    facility.finished(facility.start("next.nxs", start - 100, start))


def test_a_job_that_begins_anew_leaves_the_file_of_somebody_else(facility):
    writer = facility.writer()
    job = facility.start("taken.nxs", now_ms() + 1_000_000)
    facility.accepted(job)
    facility.end(writer)
    folder = facility.data / "jobs" / job
    record = json.loads((folder / "job.json").read_text())
    # The machine was started again after the answer and before the job's file was written.
    (folder / "job.json").write_text(json.dumps(record | {"boot": "another"}))
    (folder / "job.toml").unlink()
    shutil.rmtree(folder / "streams", ignore_errors=True)
    (facility.files / "taken.nxs").write_text("of somebody else")
    facility.writer()
    outcome, _ = facility.finished(job, is_error=True)
    assert "since the job was accepted: `taken.nxs` exists" in outcome.message
    assert (facility.files / "taken.nxs").read_text() == "of somebody else"


def test_a_job_that_restarts_does_not_remove_a_file_that_took_its_name(facility):
    writer = facility.writer()
    job = facility.start("mine.nxs")
    facility.accepted(job)
    folder = facility.data / "jobs" / job
    until(lambda: json.loads((folder / "job.json").read_text())["file"], facility.said)
    facility.end(writer)
    record = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps(record | {"boot": "another"}))
    (facility.files / "other").write_text("of somebody else")
    (facility.files / "other").rename(facility.files / "mine.nxs")
    facility.writer()
    outcome, _ = facility.finished(job, is_error=True)
    assert "is not the file of this job" in outcome.message
    assert (facility.files / "mine.nxs").read_text() == "of somebody else"


def test_a_job_of_the_far_future_ends_when_it_is_stopped(facility):
    facility.writer()
    job = facility.start("future.nxs", now_ms() + 1_000_000_000)
    facility.accepted(job)
    assert facility.answer(facility.stop(job)).status_code == 201
    outcome, _ = facility.finished(job, is_error=True)
    assert "stopped before its start" in outcome.message
    assert not (facility.files / "future.nxs").exists()
    facility.idle()


def test_an_outcome_that_is_too_large_is_sent_without_its_metadata(facility, dice):
    facility.writer()
    start = now_ms()
    fields = {"job_id": str(uuid.uuid4()), "filename": "large.nxs", "start_time": start, "stop_time": start + 1}
    fields |= {"nexus_structure": json.dumps(structure(facility.topic)), "control_topic": facility.control}
    # Compressed by the sender, it is below the limit of the broker (1 MB).
    producer = facility.kafka.producer(compression_type="gzip", message_max_bytes=10_000_000)
    producer.produce(facility.pool, serialise_pl72(**fields, metadata=dice.randbytes(700_000).hex()), partition=0)
    assert producer.flush(HANG_S) == 0
    outcome, message = facility.finished(fields["job_id"])
    assert not outcome.metadata and "too large" in message["metadata"]
    facility.idle()


def test_a_job_that_meets_a_fault_does_not_hold_up_others_that_were_left(facility, tmp_path):
    jobs = facility.data / "jobs"
    first, second = "00000000-0000-4000-8000-000000000000", str(uuid.uuid4())
    for job, aside in ((first, tmp_path / "first"), (second, tmp_path / "second")):
        writer = facility.writer()
        facility.start(f"{job}.nxs", job_id=job)
        facility.accepted(job)
        facility.end(writer)
        (jobs / job).rename(aside)
    for job, aside in ((first, tmp_path / "first"), (second, tmp_path / "second")):
        aside.rename(jobs / job)
    # It has ended, and its outcome is not there.
    record = json.loads((jobs / first / "job.json").read_text())
    (jobs / first / "job.json").write_text(json.dumps(record | {"step": "finished"}))
    facility.writer(ready=False)
    facility.stop(second)
    facility.finished(second)


@pytest.mark.root
def test_a_job_in_a_read_only_folder_is_refused(facility, tmp_path):
    small = Disk(tmp_path / "small", 64, "tmpfs")
    facility.files = small.folder
    try:
        # It does not start in such a folder.
        facility.writer()
        subprocess.run(["mount", "-o", "remount,ro", small.folder], check=True)
        refused = facility.answer(facility.start("other.nxs"))
        assert refused.status_code == 400 and "Read-only file system" in refused.message
    finally:
        small.close()


def test_the_status_tells_why_the_file_of_a_job_is_not_written(facility):
    (facility.files / ".late.nxs.new").mkdir()
    facility.writer()
    job = facility.start("late.nxs")
    facility.accepted(job)

    def troubles() -> list[str]:
        told = [json.loads(x.status_json)["trouble"] for x in facility.all(b"x5f2", facility.control)]
        return [text for text in told if text and ".late.nxs.new" in text]

    until(troubles, lambda: f"{facility.all(b'x5f2', facility.control)[-1:]} {facility.said()}")
    (facility.files / ".late.nxs.new").rmdir()
    facility.stop(job)
    facility.finished(job)


def test_jobs_side_by_side_end_soon_and_each_stop_has_one_answer(facility, times):
    count = times(3, 20)
    for _ in range(count):
        facility.writer()
    start = now_ms()
    jobs = [facility.start(f"{n}.nxs", start) for n in range(count)]
    for job in jobs:
        facility.accepted(job)
    sent = []
    for _ in range(28):
        sent += facility.send(1, max(now_ms(), start))
        start += 1
        time.sleep(1 / 14)
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    took = {}
    for n, job in enumerate(jobs):
        began = time.monotonic()
        command = facility.stop(job)
        facility.finished(job)
        took[job] = time.monotonic() - began
        (answer,) = [a for a in facility.all(b"answ", facility.control) if a.command_id == command]
        assert answer.status_code == 201
        facility.whole(f"{n}.nxs", sent)
    facility.idle()
    p95 = sorted(took.values())[int(0.95 * (count - 1))]
    print(f"{count} live jobs at 14 Hz: 6s4t to wrdn p95 {p95:.2f} s, with 0.5 s in which messages settle")


def test_a_job_is_whole_though_the_broker_is_killed(facility, times):
    facility.writer()
    start = now_ms()
    job = facility.start("broker.nxs", start)
    facility.accepted(job)
    sent, kills = [], times(1, 50)
    for n in range(kills):
        sent += facility.send(20, max(now_ms(), start + 20 * n))
        facility.kafka.restart()
    sent += facility.send(20, max(now_ms(), start + 20 * kills))
    until(lambda: now_ms() > sent[-1] // 1_000_000, "time stands still")
    assert facility.answer(facility.stop(job)).status_code == 201
    _, message = facility.finished(job)
    assert message["lost"] == []
    facility.whole("broker.nxs", sent)
    # The pool is read again, too.
    after = facility.start("after.nxs")
    facility.accepted(after)
    facility.stop(after)
    facility.finished(after)
    print(
        f"broker of a job killed and restarted: {kills} injected, 0 lost and 0 twice of {len(sent)} events and values"
    )


def test_a_job_that_is_killed_while_it_ends_has_one_outcome(facility, times, dice):
    writer, kills = facility.writer(), times(2, 60)
    for n in range(kills):
        start, first = now_ms(), facility.sent
        job = facility.start(f"{n}.nxs", start)
        facility.accepted(job)
        sent = facility.send(5, start)
        until(lambda sent=sent: now_ms() > sent[-1] // 1_000_000, "time stands still")
        facility.stop(job)
        time.sleep(dice.uniform(0.3, 1.5))
        if n % 2:
            facility.lab.kill(writer)
            writer = facility.writer(ready=False)
        else:
            for pid in facility.processes("up"):
                kill(pid)
        facility.finished(job)
        facility.idle()
        with h5py.File(facility.files / f"{n}.nxs") as file:
            assert file["entry/bank/event_time_zero"][:].tolist() == sent
            assert set(file["entry/temperature/value"][:].tolist()) >= set(map(float, range(first, first + 5)))
        # Told twice only where it is killed between the delivery and its note.
        assert len({(w.file_name, w.message) for w in facility.all(b"wrdn", facility.control) if w.job_id == job}) == 1
    print(f"service or mover of a job killed while it ended: {kills} injected, 0 lost and 0 twice")
