"""User code of join.toml."""

import beamport


@beamport.worker
def where(frame):
    place = [frame.metadata[f"sample_{axis}"] for axis in "xyz"]
    return {"place": place, "frame": frame.id, "counts": int(frame.array.sum())}
