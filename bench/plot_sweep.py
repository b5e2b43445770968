"""The plot of `beamport-bench sweep`: rates by chunk and message, a panel for each filter and number of writers.

    plot_sweep.py SWEEP.json PLOT.png

SWEEP has `events` (of a message), `writers`, the names of `chunks` that were tried, and `panels`, a filter each: rates of the
`computed` chunk and of each of `chunks`, in GB/s for each load, events outside and writers inside.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot(sweep: dict, path: str):
    events, writers, filters = sweep["events"], sweep["writers"], sweep["panels"]
    figure, axes = plt.subplots(
        len(filters), len(writers), sharex=True, sharey="row", squeeze=False, layout="constrained"
    )
    figure.set_size_inches(3.2 * len(writers), 2.8 * len(filters))
    sizes = [8 * count / 1000 for count in events]
    for row, one in zip(axes, filters, strict=True):
        for at, (panel, count) in enumerate(zip(row, writers, strict=True)):
            for name, rates in zip(sweep["chunks"], one["chunks"], strict=True):
                panel.plot(sizes, rates[at :: len(writers)], marker=".", label=name)
            panel.plot(sizes, one["computed"][at :: len(writers)], "k--x", label="computed")
            panel.set(xscale="log")
            panel.set_title(f"{one['filter']}, {count} writer{'s' * (count > 1)}", fontsize=9)
        row[0].set_ylabel("GB/s")
        # When all of the row stands: the panels share their scale, and the first must not fix it for the others.
        row[0].set_ylim(0, None)
    for panel in axes[-1]:
        panel.set_xlabel("kB of events a message")
    axes[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        plot(json.load(file), sys.argv[2])
