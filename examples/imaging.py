"""What `imaging.toml` does with each frame."""

import beamport
import numpy as np


@beamport.worker
class Corrected:
    """Takes the dark counts away."""

    def __init__(self, dark=0):
        self.dark = np.uint16(dark)

    def __call__(self, frame):
        beamport.statistics["mean"] = frame.array.mean()
        return frame.array.clip(self.dark) - self.dark
