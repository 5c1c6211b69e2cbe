"""Learning curves of several runs in one picture, with a caption that defines line and band.

The line is drawn only where every seed of the run has evaluations; beyond, single seeds are drawn as thin lines, so
that a change in the number of seeds does not look like a change in the score.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from grasp.analysis import statistics
from grasp.analysis.run_data import RunData, metric_of, short
from grasp.types import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with common colour blindness, and two more colours.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#882255", "#8C8C8C", "#B8A000")
# An algorithm has the same colour in every picture; the colours of X and GRASP-X differ most.
KNOWN = ("grasp-mappo", "mappo", "grasp-qmix", "qmix", "grasp-happo", "happo", "vdn", "ma2e")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)))
TRAINING_LABELS = {
    Metric.CONFLICT_RATE: "conflict rate",
    Metric.U_RATIO: "‖u*‖ / mean ‖g‖",
    Metric.NOISE_RATIO: "squared gradients / signal (crossfit)",
    Metric.SIGNAL: "fraction of u* that is signal (crossfit)",
}
MAX_COLUMNS = 3
TRAINING_BINS = 50
INK, FAINT = "#333333", "#DDDDDD"

Curve = Float[np.ndarray, "2 _"]
Style = tuple[str, Any]


class Band(NamedTuple):
    """The statistic over seeds at the points within the range of all of them, and the ends of its band."""

    steps: Float[np.ndarray, " points"]
    line: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """A colour and a dash pattern per label: fixed for known algorithms, in order of appearance for others."""
    pairs = [(colour, dash) for dash in DASHES for colour in PALETTE]
    fixed = dict(zip(KNOWN, pairs, strict=False))
    chosen = {label: fixed[label] for label in labels if label in fixed}
    free = iter([pair for pair in pairs if pair not in chosen.values()] * len(labels))
    return {label: chosen.get(label) or next(free) for label in dict.fromkeys(labels)}


def common_points(curves: Sequence[Curve]) -> Float[np.ndarray, " points"]:
    """Every evaluation point within the range of all curves, so that nothing is extrapolated."""
    points = np.unique(np.concatenate([steps for steps, _ in curves]))
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    return points[(points >= first) & (points <= last)]


def band(curves: Sequence[Curve]) -> Band:
    """IQM (mean below four seeds) and its 95 % bootstrap interval; below three seeds, the lowest and highest."""
    steps = common_points(curves)
    values = np.array([np.interp(steps, *curve) for curve in curves]).T
    statistic = statistics.iqm if len(curves) >= 4 else statistics.mean
    line = np.asarray(statistic(values))
    if len(curves) < 3:
        return Band(steps, line, values.min(axis=1), values.max(axis=1))
    return Band(steps, line, *statistics.bootstrap_curve(values, statistic))


def binned(curve: Curve, last: float) -> Curve:
    """A training metric averaged over fiftieths of the range up to `last`: single iterations are noisy."""
    steps, values = curve
    index = np.minimum(TRAINING_BINS * steps / max(last, 1.0), TRAINING_BINS - 1).astype(int)
    filled = np.unique(index)
    return np.array([[a[index == i].mean() for i in filled] for a in (steps, values)])


def curves(runs: Sequence[RunData], path: str | Path) -> None:
    """Write one column per environment: evaluations and, if any run has them, training metrics below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    envs = list(dict.fromkeys(run.env for run in runs))
    training = [key for key in TRAINING_LABELS if any(key in s.training for run in runs for s in run.seeds)]
    columns = min(len(envs), MAX_COLUMNS)
    blocks = -(-len(envs) // columns)
    heights = [3.4, *[1.5 for _ in training]] * blocks
    figure = Figure(figsize=(9, sum(heights) + 1.3), dpi=150, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)  # its own canvas, so that pyplot's global state is not changed
    axes = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    chosen = styles([run.label for run in runs])
    for i in range(blocks * columns):
        column = axes[i // columns * (1 + len(training)) :, i % columns][: 1 + len(training)]
        _draw_env(list(column), [run for run in runs if i < len(envs) and run.env == envs[i]], training, chosen)
    _legend(figure, chosen)
    lines = [line for text in caption(runs, bool(training)) for line in textwrap.wrap(text, 140)]
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8.5, color=INK, linespacing=1.4, parse_math=False)
    figure.savefig(str(path))


def _draw_env(column: list["Axes"], group: list[RunData], training: list[str], chosen: dict[str, Style]) -> None:
    """Fill one column from top to bottom; empty panels are hidden."""
    shown = []
    if group:
        shown.append(_draw_evaluations(column[0], group, chosen))
    for ax, key in zip(column[1:], training, strict=True):
        last = float(max((s.env_steps for run in group for s in run.seeds), default=0))
        series = {r.label: [binned(s.training[key], last) for s in r.seeds if key in s.training] for r in group}
        if not any(series.values()):
            continue
        for label, found in series.items():
            _draw(ax, found, chosen[label])
        _dress(ax, TRAINING_LABELS[key])
        ax.sharex(column[0])
        ax.set_ylim(bottom=0)
        shown.append(ax)
    for ax in column:
        ax.set_visible(ax in shown)
    for ax in shown[:-1]:
        ax.tick_params(labelbottom=False)
    for ax in shown[-1:]:
        ax.set_xlim(left=0)
        ax.set_xlabel("environment steps", fontsize=9.5, color=INK)


def _draw_evaluations(ax: "Axes", group: list[RunData], chosen: dict[str, Style]) -> "Axes":
    metric = metric_of(group)
    counts = sorted({len(run.seeds) for run in group})
    for run in group:
        _draw(ax, [s.curve(metric) for s in run.seeds if s.evaluations], chosen[run.label])
    _dress(ax, f"{metric}\n({statistic_of(group)})")
    ax.set_title(group[0].env, fontsize=11, fontweight="bold", color=INK, loc="left", pad=18, parse_math=False)
    seeds = "–".join(str(n) for n in dict.fromkeys((counts[0], counts[-1])))
    ax.text(0, 1.02, f"n = {seeds} seed{'s' * (counts[-1] > 1)}", transform=ax.transAxes, fontsize=9, color=INK)
    if metric == "win rate":
        ax.set_ylim(-0.03, 1.03)
    return ax


def _draw(ax: "Axes", curves: list[Curve], style: Style) -> None:
    if not curves:
        return
    colour, dash = style
    found = band(curves)
    marker = "o" if 0 < len(found.steps) <= 30 else ""
    ax.plot(found.steps, found.line, color=colour, linestyle=dash, linewidth=1.9, marker=marker, markersize=3, zorder=3)
    ax.fill_between(found.steps, found.low, found.high, color=colour, alpha=0.2, linewidth=0, zorder=2)
    end = found.steps[-1] if len(found.steps) else -np.inf
    for steps, values in curves:
        # From the last common point on, so that the thin line continues the thick one.
        alone = steps >= end
        if alone.sum() > 1:
            ax.plot(steps[alone], values[alone], color=colour, linestyle=dash, linewidth=0.7, alpha=0.7, zorder=2)


def _dress(ax: "Axes", label: str) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set_ylabel(label, fontsize=9.5, color=INK)
    ax.grid(True, color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#999999")
    ax.tick_params(labelsize=9, color="#999999", labelcolor=INK)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: short(x)))


def _legend(figure: "Figure", chosen: dict[str, Style]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linestyle=dash, linewidth=2.2) for colour, dash in chosen.values()]
    longest = max(len(label) for label in chosen)
    legend = figure.legend(
        handles,
        list(chosen),
        loc="outside upper left",
        ncols=max(1, min(len(chosen), 110 // (longest + 8))),
        frameon=False,
        fontsize=10,
        labelcolor=INK,
    )
    for entry in legend.get_texts():
        entry.set_parse_math(False)  # a label comes from a config and may contain a dollar sign


def statistic_of(group: Sequence[RunData]) -> str:
    """The statistic that a line shows."""
    counts = sorted({len(run.seeds) for run in group})
    if counts[-1] == 1:
        return "one seed"
    if counts[0] >= 4:
        return "IQM over seeds"
    return "mean over seeds" if counts[-1] < 4 else "IQM; mean where n < 4"


def caption(runs: Sequence[RunData], training: bool) -> list[str]:
    """The definition of each kind of band in the picture, and how the points were measured."""
    counts = {len(run.seeds) for run in runs}
    kinds = {
        "95 % bootstrap interval of the line over seeds": any(n >= 3 for n in counts),
        "lowest to highest seed where n = 2": 2 in counts,
        "none where n = 1": 1 in counts,
    }
    first = f"Band: {'; '.join(kind for kind, present in kinds.items() if present)}."
    if any(len({s.env_steps for s in run.seeds}) > 1 for run in runs):
        first += " Thin: single seeds beyond the last point that all seeds of their run have."
    if training:
        first += f" Lower panels: training, averaged over 1/{TRAINING_BINS} of the steps."
    protocols: dict[str, list[str]] = {}
    for run in runs:
        protocols.setdefault(run.protocol, []).append(f"{run.label} on {run.env}")
    usual, *others = sorted(protocols, key=lambda protocol: -len(protocols[protocol]))
    return [first, f"{usual}.", *(f"Except {', '.join(protocols[other])}: {other}." for other in others)]
