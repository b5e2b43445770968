"""The mover, which writes every stream, is killed with -9 at random moments and started again on the same folder."""

import shutil
import time

from conftest import gapless, lost_of, until

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 2e5
live = "4 MiB"

[source.devices]
kind = "sim"
model = "amor-devices"
live = "1 MiB"

[source.field]
kind = "sim"
model = "field"
level = "memory"
live = "64 MiB"

[run.first]
settle = "200 ms"
"""


class Witness:
    """Remembers what was marked, and looks whether it is still there."""

    def __init__(self):
        self.seen: dict[str, tuple[str, int, bytes]] = {}
        self.marked = 0

    def look(self, lab, disk_only: bool):
        """What is marked now: `disk` alone where the memory is about to go too."""
        for stream in lab.streams():
            first, disk, memory = stream.marks()
            assert first == 0, "nothing may be dropped here"
            mark = disk if disk_only and stream.level == "disk" else memory
            self.seen[stream.name] = (stream.uuid, mark, stream.entries(0, mark).tobytes())
        self.marked = sum(mark for _, mark, _ in self.seen.values())

    def lost(self, lab) -> list[str]:
        """What of the remembered messages is gone or differs."""
        lost = []
        for stream in lab.streams():
            uuid, mark, bytes_ = self.seen.get(stream.name, (stream.uuid, 0, b""))
            count = stream.marks()[2]
            if stream.uuid != uuid:
                lost.append(f"{stream.name}: all {mark}, it is another stream")
            elif count < mark:
                lost.append(f"{stream.name}: {count}..{mark}")
            elif stream.entries(0, mark).tobytes() != bytes_:
                wrong = (i for i in range(mark) if stream.entries(i, i + 1).tobytes() != bytes_[64 * i : 64 * i + 64])
                lost.append(f"{stream.name}: other bytes at {next(wrong)} of {mark}")
        return lost


def test_mover_killed_at_random_moments_loses_nothing_marked(lab, times, dice):
    lab.write(INSTRUMENT)
    witness = Witness()
    recoveries, without_memory, early = [], 0, 0
    kills = times(20, 500)
    for kill in range(kills):
        # The machine's memory goes too, as at a power cut: what remains is what the mark `disk` says.
        cut = kill % 5 == 4
        if kill and not cut and dice.random() < 0.25:
            # In the middle of a recovery.
            process = lab.up()
            time.sleep(dice.uniform(0, 0.05))
            early += 1
        else:
            process, seconds = lab.up_ready()
            recoveries.append(seconds)
            assert witness.lost(lab) == []
            time.sleep(dice.uniform(0, 0.3))
        witness.look(lab, disk_only=cut)
        lab.kill(process)
        if cut:
            without_memory += 1
            for stream in lab.streams(books=True):
                if stream.level == "disk":
                    shutil.rmtree(stream.live, ignore_errors=True)
    process, seconds = lab.up_ready()
    recoveries.append(seconds)
    assert witness.lost(lab) == []
    began = [stream.marks()[2] for stream in lab.streams()]
    until(lambda: all(s.marks()[2] > n for s, n in zip(lab.streams(), began, strict=True)), "no new messages")
    lab.interrupt(process)
    report = lab.report(process)
    assert witness.lost(lab) == []
    assert report["closed"] and lost_of(report) == 0
    appended = 0
    for stream in lab.streams():
        gapless(stream)
        appended += stream.marks()[2]
    # What came after the run was sealed is no part of its account.
    assert 0 < sum(row["appended"] for row in report["ledger"] if row["account"] == "entry") <= appended
    for stream in lab.streams():
        # The faults were real: each time the memory went, what had been marked `memory` alone was cut, and its numbers
        # belong to an epoch that has ended. (A recovery that is killed itself may end one more.)
        grown = len(stream.epochs) - 1
        assert grown >= without_memory if stream.level == "disk" else grown == 0
    lab.run("verify", "--data", lab.data)
    recoveries.sort()
    print(
        f"mover killed: {kills} injected ({early} while it started, {without_memory} with its memory gone), "
        f"0 lost of {witness.marked} marked messages, {appended} in the end; "
        f"ready after {recoveries[len(recoveries) // 2] * 1000:.0f} ms (median), {recoveries[-1] * 1000:.0f} ms (longest)"
    )
