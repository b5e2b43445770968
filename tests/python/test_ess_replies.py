"""The messages of `beamport ess writer`, as the Python library of ESS reads them.

`crates/ess/src/reply/tests.rs` compares the same files with what the program says.
"""

import json
from pathlib import Path

import pytest

streaming = pytest.importorskip("streaming_data_types")
answ = pytest.importorskip("streaming_data_types.action_response_answ")
ActionType, ActionOutcome = answ.ActionType, answ.ActionOutcome

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "ess"
ID = "10edfd3c-84d3-11ef-b864-0242ac120002"
SERVICE = "writer-pid:7-ab12"
KEYS = {"state", "job_id", "file_being_written", "start_time", "stop_time", "refused", "ignored"}


def read(name: str):
    """The message of a file, by the reader of its schema."""
    schema = name.split("-")[0]
    return getattr(streaming, f"deserialise_{schema}")((VECTORS / name).read_bytes())


def test_an_accepted_start_is_answered_with_201():
    told = read("answ-started")
    assert (told.service_id, told.job_id, told.command_id) == (SERVICE, ID, ID)
    assert (told.action, told.outcome) == (ActionType.StartJob, ActionOutcome.Success)
    assert told.status_code == 201
    assert told.message == ""
    assert told.stop_time.timestamp() == 1_750_000_060


def test_a_refusal_lists_every_mistake():
    told = read("answ-refused")
    assert (told.outcome, told.status_code) == (ActionOutcome.Failure, 400)
    assert told.message.splitlines() == [
        "filename: `a` exists; name a new file",
        "/children/0/config/dtype: unknown word `dubble`",
    ]


def test_an_idle_status_has_the_keys_of_kafka_to_nexus():
    told = read("x5f2-idle")
    assert (told.software_name, told.service_id, told.host_name) == ("kafka-to-nexus", SERVICE, "host")
    assert (told.process_id, told.update_interval) == (7, 2000)
    status = json.loads(told.status_json)
    assert set(status) == KEYS
    assert status["state"] == "idle"


def test_a_writing_status_says_how_each_topic_goes():
    status = json.loads(read("x5f2-writing").status_json)
    assert set(status) == KEYS | {"topics", "trouble"}
    assert (status["state"], status["job_id"], status["file_being_written"]) == ("writing", ID, "sub/a.nxs")
    assert status["topics"] == {
        "loki_detector": {"messages": 5, "bytes": 700, "rate": 1.5, "lag": 2, "aside": 1, "lost": 0}
    }


def test_a_finished_file_has_the_metadata_of_its_start():
    told = read("wrdn-done")
    assert (told.service_id, told.job_id, told.file_name) == (SERVICE, ID, "/data/sub/a.nxs")
    assert told.metadata == '{ "a": 1}'
    assert not told.error_encountered
    assert json.loads(told.message) == {
        "topics": {"loki_detector": {"messages": 5, "bytes": 700}},
        "aside": {"unfit": 1},
        "lost": [],
        "blake3": "af13",
        "content": "c0de",
    }


def test_loss_is_an_error_with_its_offsets():
    told = read("wrdn-lost")
    assert told.error_encountered
    lost = {"topic": "loki_detector", "partition": 1, "first": 3, "last": 14, "reason": "lost.retention"}
    account = json.loads(told.message)
    assert (account["error"], account["lost"]) == ("12 messages are lost", [lost])
