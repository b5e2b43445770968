"""The plot of `beamport bench sweep`: rates by chunk and message, a panel for each filter and number of writers.

    plot_sweep.py SWEEP.json PLOT.png

SWEEP has `events` (of a message), `writers`, and `figures` of the report, a filter each: `ours` is the computed chunk,
`limits` are those that were tried; the rounds are the loads, events outside and writers inside.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def plot(sweep: dict, path: str):
    events, writers, figures = sweep["events"], sweep["writers"], sweep["figures"]
    panels = plt.subplots(len(figures), len(writers), sharex=True, sharey="row", squeeze=False, layout="constrained")
    figure, axes = panels
    figure.set_size_inches(3.2 * len(writers), 2.8 * len(figures))
    sizes = [8 * count / 1000 for count in events]
    for row, one in zip(axes, figures, strict=True):
        for at, (panel, count) in enumerate(zip(row, writers, strict=True)):
            for limit in one["limits"]:
                panel.plot(sizes, limit["rounds"][at :: len(writers)], marker=".", label=limit["name"])
            panel.plot(sizes, one["ours"]["rounds"][at :: len(writers)], "k--", label="computed")
            panel.set(xscale="log", ylim=(0, None))
            panel.set_title(f"{one['name'].rpartition(', ')[2]}, {count} writer{'s' * (count > 1)}", fontsize=9)
        row[0].set_ylabel("GB/s")
    for panel in axes[-1]:
        panel.set_xlabel("kB of events a message")
    axes[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        plot(json.load(file), sys.argv[2])
