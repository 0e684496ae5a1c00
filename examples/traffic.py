"""Forecast the speeds at 207 detectors of Los Angeles' roads, an hour ahead from the hour before.

    python examples/traffic.py --root data                 # three seeds of each network
    python examples/traffic.py --seeds 1 --epochs 5        # a first look

An encoder reads twelve steps of five minutes, a decoder writes the next twelve, each a ConvGRUCell.
With diffusion along the roads in both directions these are the cells of DCRNN (arXiv 1707.01926);
with `Identity()` the same program is a GRU at each detector, which does not see the others. Both
have as many states, and as many steps of training, and are compared with the last value on the
last fifth of the time. The graph makes less error than either at every horizon: 3.12, 3.72 and 4.62
miles an hour after 15, 30 and 60 minutes (traffic.md). A seed of it takes about five minutes of one
core. Data: `los_loop/los_speed.csv` and `los_loop/los_adj.csv` below the root.
"""

import argparse
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import is_undirected

from pyg_outerconv.families import Identity, Walk
from pyg_outerconv.files import ROOT_VARIABLE, data_root
from pyg_outerconv.nn import ConvGRUCell, unroll

PAST, AHEAD = 12, 12  # steps of five minutes
SHOWN = (3, 6, 12)
DAY = 288
FILES = ("los_speed.csv", "los_adj.csv")
ROADS = Walk(2, norm="target", direction="both")
GRAPH, ALONE, LAST = "ConvGRU on the roads", "GRU without the graph", "last value"


@dataclass
class Traffic:
    """Speeds (T, N), which of them are known, and the roads between detectors."""

    speed: Tensor
    mask: Tensor
    edges: Tensor
    weights: Tensor

    def parts(self):
        """The steps of training, validation and test: 70, 10 and 20 percent, in order of time."""
        first, second = int(0.7 * len(self.speed)), int(0.8 * len(self.speed))
        return range(first), range(first, second), range(second, len(self.speed))

    def scale(self):
        """Mean and standard deviation of the known speeds of training."""
        steps = len(self.parts()[0])
        speeds = self.speed[:steps][self.mask[:steps]]
        return speeds.mean(), speeds.std()


def read(root=None):
    """The data below a root. A speed that is absent, or zero, is unknown."""
    folder = data_root(root) / "los_loop"
    if absent := [name for name in FILES if not (folder / name).is_file()]:
        raise SystemExit(
            f"{' and '.join(absent)} not in {folder}: name another root by --root "
            f"or {ROOT_VARIABLE}"
        )
    speed = np.genfromtxt(folder / FILES[0], delimiter=",", skip_header=1, dtype=np.float32)
    adjacency = torch.from_numpy(np.loadtxt(folder / FILES[1], delimiter=",", dtype=np.float32))
    speed = torch.from_numpy(speed)
    edges = adjacency.nonzero().t().contiguous()
    mask = speed.isfinite() & (speed > 0)
    return Traffic(speed, mask, edges, adjacency[edges[0], edges[1]])


class Forecaster(torch.nn.Module):
    """An encoder and a decoder over a family; the decoder reads what it wrote itself."""

    def __init__(self, family, hidden):
        super().__init__()
        self.sees_roads = family.makes_use_of("edge_weight")
        self.encoder = ConvGRUCell(3, hidden, family, cached=True)
        self.decoder = ConvGRUCell(3, hidden, family, cached=True)
        self.readout = torch.nn.Linear(hidden, 1)
        torch.nn.init.zeros_(self.readout.weight)  # it begins with the last value
        torch.nn.init.zeros_(self.readout.bias)

    def forward(self, past, clock, edges, weights):
        """Speeds (AHEAD, B, N) of speeds (PAST, B, N) and the clock (PAST + AHEAD, B, 1, 2)."""
        clock = clock.expand(-1, -1, past.size(-1), -1)
        weights = weights if self.sees_roads else None
        seen = torch.cat([past.unsqueeze(-1), clock[:PAST]], dim=-1)
        _, state = unroll(self.encoder, seen, edges, edge_weight=weights)
        here, written = past[-1].unsqueeze(-1), []
        for now in clock[PAST:]:
            state = self.decoder(torch.cat([here, now], dim=-1), edges, state, weights)
            here = here + self.readout(state)
            written.append(here.squeeze(-1))
        return torch.stack(written)


class Windows:
    """Windows of PAST + AHEAD steps that lie within a part of the time, of scaled speeds."""

    def __init__(self, traffic, part):
        self.traffic = traffic
        self.mean, self.std = traffic.scale()
        scaled = (traffic.speed - self.mean) / self.std
        self.scaled = scaled.masked_fill(~traffic.mask, 0.0)
        self.starts = torch.arange(part.start, part.stop - PAST - AHEAD + 1)

    def batch(self, starts):
        """Of B windows: the past, the clock, and what comes with which of it is known."""
        steps = torch.arange(PAST + AHEAD).unsqueeze(1) + starts
        angle = 2 * torch.pi * (steps % DAY) / DAY
        clock = torch.stack([angle.sin(), angle.cos()], dim=-1).unsqueeze(-2)
        ahead = steps[PAST:]
        return (
            self.scaled[steps[:PAST]],
            clock,
            self.traffic.speed[ahead],
            self.traffic.mask[ahead],
        )

    def forecast(self, model, starts):
        """Speeds (AHEAD, B, N) of B windows; of no model, the last value."""
        past, clock, *_ = self.batch(starts)
        if model is None:
            scaled = past[-1:].expand(AHEAD, -1, -1)
        else:
            scaled = model(past, clock, self.traffic.edges, self.traffic.weights)
        return scaled * self.std + self.mean

    @torch.no_grad()
    def errors(self, model):
        """The mean absolute error of each step ahead, over what is known."""
        total, count = torch.zeros(AHEAD), torch.zeros(AHEAD)
        for starts in self.starts.split(128):
            _, _, truth, mask = self.batch(starts)
            gap = (self.forecast(model, starts) - truth).abs()
            total += gap.masked_fill(~mask, 0.0).sum((1, 2))
            count += mask.sum((1, 2))
        return total / count


def train(traffic, family, seed, options):
    """The model of the epoch with the least error on the validation windows."""
    torch.manual_seed(seed)
    model = Forecaster(family, options.hidden)
    ours, others = (Windows(traffic, part) for part in traffic.parts()[:2])
    count = min(options.windows, len(ours.starts))
    steps = options.epochs * -(-count // options.batch)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, total_steps=steps)
    least, best = float("inf"), model.state_dict()
    for _ in range(options.epochs):
        chosen = ours.starts[torch.randperm(len(ours.starts))[:count]]
        for starts in chosen.split(options.batch):
            _, _, truth, mask = ours.batch(starts)
            optimizer.zero_grad()
            (ours.forecast(model, starts) - truth)[mask].abs().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
        error = float(others.errors(model).mean())
        if error < least:
            least = error
            best = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(best)
    return model


def measure(traffic, options):
    """By contender, the errors (seeds, AHEAD) on the test windows; and the last models."""
    test = Windows(traffic, traffic.parts()[2])
    families = {ALONE: Identity(), GRAPH: ROADS}
    errors, seconds, models = {LAST: test.errors(None).unsqueeze(0)}, {}, {LAST: None}
    for name, family in families.items():
        began, rows = time.perf_counter(), []
        for seed in range(options.seeds):
            models[name] = train(traffic, family, seed, options)
            rows.append(test.errors(models[name]))
            print(f"{name}, seed {seed}: {shown(rows[-1:])}", flush=True)
        errors[name] = torch.stack(rows)
        seconds[name] = (time.perf_counter() - began) / options.seeds
    return errors, seconds, models


def shown(rows):
    """Mean ± standard deviation over seeds of the errors at the steps that are shown."""
    rows = torch.stack(list(rows))[:, [step - 1 for step in SHOWN]]
    spread = rows.std(0) if len(rows) > 1 else torch.zeros(len(SHOWN))
    cells = [
        f"{mean:.3f}" + (f" ± {by:.3f}" if len(rows) > 1 else "")
        for mean, by in zip(rows.mean(0).tolist(), spread.tolist(), strict=True)
    ]
    return " | ".join(cells)


def page(traffic, errors, seconds, models, options):
    """What was measured, in Markdown."""
    unknown = int((~traffic.mask).sum())
    rows = [
        f"| {name} | {size(models[name])} | {shown(seed_errors)} | {seconds.get(name, 0.0):.0f} |"
        for name, seed_errors in errors.items()
    ]
    gap = shown(errors[GRAPH] - errors[ALONE])
    parts = ", ".join(str(len(part)) for part in traffic.parts())
    return "\n".join(
        [
            "# Traffic, an hour ahead",
            "",
            "Mean absolute error of the speed in miles an hour at the detectors, 3, 6 and 12 steps "
            "(15, 30 and 60 minutes) ahead; mean ± standard deviation over seeds, of which there "
            f"are {options.seeds}; seconds for one seed.",
            "",
            f"| | parameters | {' | '.join(f'{step} steps' for step in SHOWN)} | s/seed |",
            "|---|---|---|---|---|---|",
            *rows,
            f"| the graph's difference, seed by seed | | {gap} | |",
            "",
            f"Steps of training, validation and test, in order of time: {parts}. Windows lie "
            "within one of them; scaled by the training part. Unknown speeds (absent or zero), "
            f"left out of loss and error: {unknown}. Both networks have {options.hidden} states at "
            f"a detector and {options.epochs} epochs of {options.windows} windows; the epoch is "
            "chosen by validation.",
            "",
            f"The graph has {traffic.edges.size(1)} roads between {traffic.speed.size(1)} "
            f"detectors; the basis, `{ROADS}`, is DCRNN's."
            + " These roads have one weight both ways."
            * is_undirected(traffic.edges, traffic.weights),
            "",
            f"torch {torch.__version__}, {torch.get_num_threads()} thread(s) of a "
            f"{platform.machine()} CPU. Written by "
            "`python examples/traffic.py --out examples/traffic.md --picture "
            "examples/pictures/traffic.png`.",
            "",
            "![errors by step, and forecasts at one detector](pictures/traffic.png)",
            "",
        ]
    )


def size(model):
    """The number of parameters."""
    return 0 if model is None else sum(p.numel() for p in model.parameters())


def draw(traffic, errors, models, path):
    """Errors by step, and the forecasts of the test days at the detector that varies most."""
    from pyg_outerconv.plot.canvas import new_figure, save

    test = Windows(traffic, traffic.parts()[2])
    figure = new_figure(10.0, 3.6)
    by_step, by_time = figure.subplots(1, 2, width_ratios=(1, 2))
    colours = {LAST: "0.6", ALONE: "C1", GRAPH: "C0"}
    for name, seed_errors in errors.items():
        minutes = torch.arange(1, AHEAD + 1) * 5
        by_step.plot(minutes, seed_errors.mean(0), marker=".", color=colours[name], label=name)
    by_step.set(xlabel="minutes ahead", ylabel="mean absolute error (mph)")
    by_step.legend(fontsize="small")
    there = int(traffic.speed[test.starts].std(0).argmax())
    arrival = test.starts + PAST + AHEAD - 1
    hours = arrival / (DAY / 24)
    by_time.plot(hours, traffic.speed[arrival, there], color="0.2", label="measured")
    for name in (ALONE, GRAPH):
        with torch.no_grad():
            forecasts = torch.cat(
                [test.forecast(models[name], part) for part in test.starts.split(128)], 1
            )
        by_time.plot(hours, forecasts[-1, :, there], color=colours[name], linewidth=1, label=name)
    by_time.set(xlabel="hours since the first step", ylabel="speed (mph)")
    by_time.set_title(f"60 minutes ahead, detector {there}", fontsize="medium")
    by_time.legend(fontsize="small")
    save(figure, path)


def main(arguments=None):
    """Train, and print the errors at 3, 6 and 12 steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", help="folder of the data sets")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=32, help="states at each detector")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--windows", type=int, default=512, help="windows of an epoch")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--out", type=Path, help="write the figures here")
    parser.add_argument("--picture", type=Path, help="draw errors and forecasts here")
    options = parser.parse_args(arguments)
    traffic = read(options.root)
    errors, seconds, models = measure(traffic, options)
    for name, seed_errors in errors.items():
        print(f"{name}: {shown(seed_errors)} at {', '.join(map(str, SHOWN))} steps")
    if options.out:
        options.out.write_text(page(traffic, errors, seconds, models, options), encoding="utf-8")
    if options.picture:
        draw(traffic, errors, models, options.picture)
    return errors


if __name__ == "__main__":
    main()
