"""The limit of `beamport-bench nexus`: plain h5py that appends batches of events as they come.

    append_h5py.py write FILE MESSAGES EVENTS    writes, prints seconds, CPU seconds and the sums of the file
    append_h5py.py sums FILE                     prints the sums of a file: events, pixels, times of flight, pulses

Batch `i` has EVENTS events: pixel (7 i + 13 k) mod 32768 + 1 and time of flight 1000 + 31 k for event k.
"""

import os
import sys
import time

import h5py
import numpy as np

GROUP = "entry/detector"
START_NS = 1_700_000_000_000_000_000
PULSE_NS = 71_428_571
# Elements: 1 MiB of events and 64 kB of pulses a chunk. h5py's own guess (1024) makes it several times slower.
EVENT_CHUNK, PULSE_CHUNK = 1 << 18, 1 << 13


def append(dataset, values):
    rows = len(dataset)
    dataset.resize((rows + len(values),))
    dataset[rows:] = values


def write(path, messages, events):
    k = np.arange(events, dtype=np.int32)
    pixels = [(7 * i + 13 * k) % 32768 + 1 for i in range(min(messages, 64))]
    times = 1000 + 31 * k
    wall, cpu = time.perf_counter(), time.process_time()
    with h5py.File(path, "w") as file:
        group = file.create_group(GROUP)

        def growing(name, dtype, chunk):
            return group.create_dataset(name, (0,), maxshape=(None,), chunks=(chunk,), dtype=dtype)

        ids = growing("event_id", "i4", EVENT_CHUNK)
        offsets = growing("event_time_offset", "i4", EVENT_CHUNK)
        zeros = growing("event_time_zero", "i8", PULSE_CHUNK)
        index = growing("event_index", "i8", PULSE_CHUNK)
        for i in range(messages):
            append(index, [len(ids)])
            append(zeros, [START_NS + i * PULSE_NS])
            append(ids, pixels[i % 64])
            append(offsets, times)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
    print(time.perf_counter() - wall, time.process_time() - cpu, *sums(path))


def sums(path):
    with h5py.File(path) as file:
        group = file[GROUP]
        ids, offsets = group["event_id"], group["event_time_offset"]
        total = pixel = tof = 0
        for at in range(0, len(ids), 1 << 22):
            block = ids[at : at + (1 << 22)]
            total, pixel = total + len(block), pixel + int(block.sum(dtype=np.int64))
            tof += int(offsets[at : at + (1 << 22)].sum(dtype=np.int64))
        return total, pixel, tof, len(group["event_time_zero"])


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        print(*sums(sys.argv[2]))
