"""Both sides of `beamport-bench wire`: `beamport.wire` and the package whose place it takes, with the same call.

    wire_package.py SCHEMA ROUNDS CALLS

Both sides make the same messages in turn; which goes first changes from round to round. Needs ess-streaming-data-types.

Prints: bytes of a message; then of each round a line with seconds and processor seconds of `beamport.wire`, and the same of
the package.
"""

import sys
import time

import beamport.wire
import numpy as np
import streaming_data_types


def arguments(schema):
    if schema == "f144":
        return "AMOR:SE:TEMP01", 291.5, 1_700_000_000_000_000_000
    events = np.arange(100_000, dtype=np.int32)
    return "multiblade", 1, [1_700_000_000_000_000_000], [0], events, events[::-1].copy()


def seconds(serialise, given, calls):
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        serialise(*given)
    return time.perf_counter() - start, time.process_time() - cpu


def main(schema, rounds, calls):
    given = arguments(schema)
    sides = [beamport.wire.SERIALISERS[schema], streaming_data_types.SERIALISERS[schema]]
    for serialise in sides:
        seconds(serialise, given, max(1, calls // 10))
    print(len(sides[0](*given)))
    for turn in range(rounds):
        order = sides if turn % 2 == 0 else sides[::-1]
        taken = {serialise: seconds(serialise, given, calls) for serialise in order}
        print(*taken[sides[0]], *taken[sides[1]])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
