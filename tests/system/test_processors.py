"""Processors of other streaming frameworks as workers: what each of them says, said here, whatever is killed.

Moving average, statistics of pixels, analysis beside the frame, maps of reciprocal space, a network on batches of
frames, a network on patches of several frames, and a rotation with a log and a number of its own.
"""

import os
import signal

import numpy as np
import pytest
from conftest import camera, until, worker

beamport = pytest.importorskip("beamport", reason="pip install .")

CODE = '''
import beamport
import numpy as np

@beamport.worker
class Average:
    """Moving average of the last frames, which survives its process."""
    def __init__(self, frames=5):
        self.frames, self.last = frames, []

    def __call__(self, frame):
        self.last = [*self.last, frame.array.astype("f4")][-self.frames :]
        return np.mean(self.last, axis=0)

    def save(self):
        return self.last

    def restore(self, state):
        self.last = state

@beamport.worker
def pixels(frame):
    """Three numbers of each frame, each a stream."""
    for name in ("min", "max", "mean"):
        yield beamport.result(float(getattr(np, name)(frame.array)), name=name)

@beamport.worker
def analysis(frame, x=10, y=10):
    """The sums of regions, beside the frame that they are of."""
    region = frame.array[:y, :x]
    return frame, {"roi_sum": float(region.sum()), "com": np.array([1.0, 2.0]), "state": "good"}

@beamport.worker
class Maps:
    """Maps of reciprocal space: again only where the angle has changed, in any process."""
    def __init__(self, angle=0.0):
        self.angle, self.sent = angle, None

    def configure(self, angle=0.0):
        self.angle = angle

    def __call__(self, frame):
        if self.sent != self.angle:
            self.sent = self.angle
            rows, columns = np.indices(frame.array.shape)
            for name, values in (("qx", columns), ("qy", rows), ("qz", rows * 0 + self.angle)):
                yield beamport.result({"signal": values.astype("f4")}, name=name, unit="1/angstrom")
        yield frame, {"angle": self.angle}

    def save(self):
        return self.sent

    def restore(self, state):
        self.sent = state

@beamport.worker(batch=8, gather=True, pad=True, pure=True)
def network(images, count):
    """One image of each of eight frames."""
    assert images.shape[0] == 8 and 1 <= count <= 8
    return list(images[:, ::2, ::2].astype("f4") / 2)

@beamport.worker(batch=4)
def patches(frames):
    """A call of the network for the patches of several frames; each peak is a result of its own frame."""
    cut = [(m, at) for m in frames for at in range(m.id % 3)]
    if not cut:
        return []
    stack = np.stack([m.array[at : at + 4, at : at + 4] for m, at in cut]).astype("f4")
    found = stack.mean(axis=(1, 2))
    return [beamport.result(float(value), of=m, name=f"peak{at}") for (m, at), value in zip(cut, found)]

@beamport.worker
class Rotate:
    def __init__(self, turns=1):
        self.turns, self.count = turns, 0

    def setup(self):
        beamport.slot.log.info("processor %d of %s", beamport.slot.number, beamport.slot.worker)

    def configure(self, turns=1, reset=0):
        self.turns, self.count = turns, 0

    def __call__(self, frame):
        self.count += 1
        beamport.statistics["rotated"] = self.count
        return np.rot90(frame.array, self.turns)
'''


def started(lab, *workers: str, fps: int = 200):
    (lab.folder / "mine.py").write_text(CODE)
    lab.write(camera(fps, "disk") + "\n".join(workers))
    process, _ = lab.up_ready()
    return process, beamport.open(lab.data)


def goes_on(data, name: str, more: int = 20) -> None:
    count = data[name].count
    until(lambda: data[name].count > count + more, f"{name} does not go on")


def end(lab, process) -> None:
    lab.interrupt(process)
    lab.end(process)


def disk(name: str, call: str, more: str = "") -> str:
    return worker(name, call, 'level = "disk"\n' + more)


def test_a_moving_average_is_exact_through_the_death_of_its_process(lab):
    process, data = started(lab, disk("average", "mine.py:Average", "parameters = { frames = 3 }\n"))
    for _ in range(4):
        goes_on(data, "average")
        [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "average")]
    goes_on(data, "average")
    end(lab, process)
    frames = [m.array.astype("f4") for m in data["camera"].read()]
    for at, m in enumerate(data["average"].read()):
        assert m.id == at and np.array_equal(m.array, np.mean(frames[max(0, at - 2) : at + 1], axis=0))


def test_three_numbers_of_a_frame_are_three_streams(lab):
    filters = [
        f'\n[worker.px_{name}]\ncall = "filter"\ninputs = ["pixels"]\nparameters = {{ keep = "source == \'{name}\'" }}\n'
        for name in ("min", "max", "mean")
    ]
    process, data = started(lab, worker("pixels", "mine.py:pixels"), *filters)
    for name in ("min", "max", "mean"):
        until(lambda name=name: data[f"px_{name}"].count > 20, "no numbers")
    end(lab, process)
    frames = {m.id: m.array for m in data["camera"].read()}
    for name in ("min", "max", "mean"):
        found = list(data[f"px_{name}"].read())
        assert [m.origin_seq for m in found] == list(range(len(found)))
        assert all(m.value == float(getattr(np, name)(frames[m.origin_seq])) for m in found)


def test_results_are_beside_the_frame(lab):
    process, data = started(lab, worker("analysis", "mine.py:analysis", "slots = 2\n"))
    goes_on(data, "analysis")
    end(lab, process)
    for m, was in zip(data["analysis"].read(), data["camera"].read(), strict=False):
        assert m.id == was.id and np.array_equal(m.array, was.array)
        assert m.metadata["roi_sum"] == float(was.array[:10, :10].sum()) and m.metadata["state"] == "good"
        assert list(m.metadata["com"]) == [1.0, 2.0]


def test_maps_are_there_once_for_each_angle(lab):
    process, data = started(lab, disk("maps", "mine.py:Maps"))
    goes_on(data, "maps")
    [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "maps")]
    goes_on(data, "maps")
    lab.run("configure", "maps", "angle=12.5", "--data", lab.data)
    goes_on(data, "maps")
    end(lab, process)
    names, angles = [], []
    for m in data["maps"].read():
        if m.schema == "da00":
            names.append(m["source_name"])
        else:
            angles.append(m.metadata["angle"])
    assert names == ["qx", "qy", "qz"] * 2 and set(angles) == {0.0, 12.5} and angles == sorted(angles)


def test_each_image_of_a_batch_is_of_its_own_frame(lab):
    process, data = started(lab, disk("network", "mine.py:network", "slots = 2\n"))
    for _ in range(2):
        goes_on(data, "network")
        [os.kill(pid, signal.SIGKILL) for pid in lab.slots(process, "network")]
    goes_on(data, "network")
    end(lab, process)
    frames = {m.id: m for m in data["camera"].read()}
    found = list(data["network"].read())
    assert [m.id for m in found] == list(range(len(found))) and len(found) > 40
    for m in found:
        was = frames[m.id]
        assert m.source_time == was.source_time and np.array_equal(m.array, was.array[::2, ::2].astype("f4") / 2)


def test_patches_of_several_frames_are_results_of_their_frames(lab):
    process, data = started(lab, disk("patches", "mine.py:patches"))
    goes_on(data, "patches")
    end(lab, process)
    frames = {m.id: m for m in data["camera"].read()}
    found = [(m.origin_seq, m["source_name"], m.value, m.source_time) for m in data["patches"].read()]
    wanted = []
    for number in range(found[-1][0] + 1):
        for at in range(number % 3):
            patch = frames[number].array[at : at + 4, at : at + 4].astype("f4")
            wanted.append((number, f"peak{at}", float(patch[None].mean(axis=(1, 2))[0]), frames[number].source_time))
    assert found == wanted[: len(found)] and len(found) > 20


def test_a_processor_has_a_number_a_log_and_statistics_that_are_reset(lab):
    process, data = started(lab, worker("rotate", "mine.py:Rotate"))
    goes_on(data, "rotate")
    lab.run("configure", "rotate", "turns=2", "--data", lab.data)
    goes_on(data, "rotate")
    end(lab, process)
    assert "worker `rotate` slot 0: INFO processor 0 of rotate" in lab.said(process)[1]
    frames = {m.id: m.array for m in data["camera"].read()}
    turns = [1 if np.array_equal(m.array, np.rot90(frames[m.id], 1)) else 2 for m in data["rotate"].read()]
    assert turns == sorted(turns) and set(turns) == {1, 2}
    last = [m["value"] for m in data["rotate.statistics"].read() if m["source_name"] == "rotated"]
    assert last and last[-1] < len(turns)
