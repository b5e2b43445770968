"""How much faster `beamport.wire` serialises than the package whose place it takes, with the same call.

    python bench/wire_package.py    prints for each message the median ratio of 7 rounds, with the smallest and largest

Both sides make the same messages in turn; which goes first changes from round to round. Needs ess-streaming-data-types.
"""

import statistics
import time

import beamport.wire
import numpy as np
import streaming_data_types

ROUNDS = 7
# Long enough for the clock, short enough for the patience: the slower side takes some tenths of a second.
CALLS = {"f144": 5_000, "ev44": 100}


def arguments(schema):
    if schema == "f144":
        return "AMOR:SE:TEMP01", 291.5, 1_700_000_000_000_000_000
    events = np.arange(100_000, dtype=np.int32)
    return "multiblade", 1, [1_700_000_000_000_000_000], [0], events, events[::-1].copy()


def seconds(serialise, given, calls):
    start = time.perf_counter()
    for _ in range(calls):
        serialise(*given)
    return time.perf_counter() - start


def ratios(schema):
    given, calls = arguments(schema), CALLS[schema]
    sides = [streaming_data_types.SERIALISERS[schema], beamport.wire.SERIALISERS[schema]]
    for serialise in sides:
        seconds(serialise, given, calls // 10)
    for turn in range(ROUNDS):
        order = sides if turn % 2 == 0 else sides[::-1]
        taken = {serialise: seconds(serialise, given, calls) for serialise in order}
        yield taken[sides[0]] / taken[sides[1]]


if __name__ == "__main__":
    for schema in CALLS:
        found = sorted(ratios(schema))
        print(f"{schema}: {statistics.median(found):.1f} ({found[0]:.1f} to {found[-1]:.1f})")
