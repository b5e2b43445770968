"""What `tiles.toml` does with each tile."""

import beamport
import numpy as np


@beamport.worker
def above(tile, background=0):
    """Take a background away."""
    beamport.statistics["brightest"] = tile.array.max()
    return tile.array.clip(background) - np.uint16(background)
