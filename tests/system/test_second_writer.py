"""A second `beamport up` on a data folder that is in use."""

from conftest import gapless, lost_of, until

INSTRUMENT = """
[source.detector]
kind = "sim"
model = "amor"
rate = 1e4
live = "1 MiB"

[run.first]
settle = "200 ms"
"""


def test_second_writer_is_refused_and_the_first_goes_on(lab, times):
    lab.write(INSTRUMENT)
    first, _ = lab.up_ready()
    tries = times(5, 100)
    for _ in range(tries):
        before = lab.stream("detector").marks()[2]
        second = lab.run("up", lab.file, status=2)
        text = second.stderr.decode()
        assert second.stdout == b""
        assert str(lab.data) in text or str(first.pid) in text, text
        assert "hint:" in text and "error:" in text
        assert first.poll() is None
        assert (lab.data / "control.sock").exists(), "the second took the first one's socket away"
        until(lambda before=before: lab.stream("detector").marks()[2] > before, "the first one stands still")
    lab.interrupt(first)
    report = lab.report(first)
    assert report["closed"] and lost_of(report) == 0
    gapless(lab.stream("detector"))
    print(f"second writer: {tries} injected, {tries} refused, 0 lost of {lab.stream('detector').marks()[2]} messages")


def test_two_writers_started_at_once_make_one(lab, times):
    lab.write(INSTRUMENT)
    tries = times(3, 50)
    for _ in range(tries):
        pair = [lab.up(), lab.up()]
        until(lambda pair=pair: any(p.poll() is not None for p in pair), "neither was refused")
        loser = next(p for p in pair if p.poll() is not None)
        winner = next(p for p in pair if p is not loser)
        assert loser.returncode == 2, lab.said(loser)[1]
        until(lambda winner=winner: lab.ready(winner), "the other one does not work")
        lab.kill(winner)
    gapless(lab.stream("detector"))
    print(f"two writers at once: {tries} pairs injected, one of each refused, 0 lost")
