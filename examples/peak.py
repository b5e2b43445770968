"""User code of peak.toml: a scan of a motor through a peak, and the fit of the peak while it is measured."""

import time

import beamport
import numpy as np

STEP_NS = 50_000_000
POSITIONS = np.linspace(-1.0, 1.0, 41)


def position(at_ns):
    """Where the motor stands: a step each 50 ms, from one end to the other, then from the first end again."""
    return float(POSITIONS[at_ns // STEP_NS % len(POSITIONS)])


def expected(x, centre, width, height, ground):
    """Counts of a Gaussian peak on a flat background; `width` is the standard deviation."""
    return height * np.exp(-0.5 * ((x - centre) / width) ** 2) + ground


def motor():
    """The motor tells its position at each step."""
    step = time.time_ns() // STEP_NS
    while True:
        at = step * STEP_NS
        time.sleep(max(0, at - time.time_ns()) / 1e9)
        yield beamport.message(
            "f144", {"source_name": "motor", "timestamp": at, "value": position(at)}, origin_seq=step
        )
        step += 1


def camera(centre, width, height=400.0, ground=20.0, seed=1):
    """A frame in the middle of each step: 8 x 8 pixels that share the counts of the peak."""
    step = time.time_ns() // STEP_NS
    while True:
        at = step * STEP_NS + STEP_NS // 2
        time.sleep(max(0, at - time.time_ns()) / 1e9)
        # The counts follow from seed and step alone: the same after a restart.
        dice = np.random.default_rng([seed, step])
        counts = dice.poisson(expected(position(at), centre, width, height, ground) / 64, (8, 8))
        fields = {"source_name": "camera", "id": step & 0x7FFFFFFF, "timestamp": at, "data": counts.astype(np.uint16)}
        yield beamport.message("ad00", fields, origin_seq=step)
        step += 1


def fit(x, total, frames):
    """Weighted fit of `expected` to the mean counts: values and their errors, or None while it does not converge.

    It is pure: the same sums give the same result. The weights are those of Poisson counts.
    """
    seen = frames > 0
    x, mean, error = x[seen], total[seen] / frames[seen], np.sqrt(np.maximum(total[seen], 1)) / frames[seen]
    if len(x) < 8:
        return None
    ground = mean.min()
    weight = mean - ground
    if weight.sum() <= 0:
        return None
    centre = (x * weight).sum() / weight.sum()
    width = np.sqrt((weight * (x - centre) ** 2).sum() / weight.sum())
    values = np.array([centre, max(width, 0.01), mean.max() - ground, ground])
    for _ in range(50):
        shape = np.exp(-0.5 * ((x - values[0]) / values[1]) ** 2)
        slope = values[2] * shape * (x - values[0]) / values[1] ** 2
        columns = [slope, slope * (x - values[0]) / values[1], shape, np.ones_like(x)]
        matrix = np.stack(columns, axis=1) / error[:, None]
        normal = matrix.T @ matrix
        if not np.isfinite(normal).all() or np.linalg.cond(normal) > 1e14:
            return None
        change = np.linalg.solve(normal, matrix.T @ ((mean - expected(x, *values)) / error))
        values = values + change
        if np.abs(change[:2]).max() < 1e-9:
            errors = np.sqrt(np.diag(np.linalg.inv(normal)))
            return (values, errors) if values[1] > 0 and values[2] > 0 else None
    return None


@beamport.worker(per="run")
class Peak:
    """Adds the counts of the run at each position, and fits the peak at each frame."""

    def __init__(self):
        self.total = np.zeros(len(POSITIONS))
        self.frames = np.zeros(len(POSITIONS))

    def __call__(self, frame):
        if "motor" not in frame.metadata:
            return None
        at = np.abs(POSITIONS - frame.metadata["motor"]).argmin()
        self.total[at] += frame.array.sum()
        self.frames[at] += 1
        found = fit(POSITIONS, self.total, self.frames)
        if found is None:
            return None
        values, errors = found
        named = {"centre": values[0], "centre_error": errors[0], "width": values[1], "width_error": errors[1]}
        return [beamport.result(float(value), name=name) for name, value in named.items()]

    def save(self):
        return {"total": self.total, "frames": self.frames}

    def restore(self, state):
        self.total, self.frames = state["total"].copy(), state["frames"].copy()
