"""What heads do to base and novel classes, over class splits and seeds: the tables of docs/heads.md.

    python scripts/table_heads.py measure shapes --out heads_shapes --splits 20 --seeds 1 2 3
    python scripts/table_heads.py table heads_shapes
    python scripts/table_heads.py ladder --out heads_ladder --splits 5

``measure`` writes one JSON line for each draw, calibrator and split, and goes on where it was stopped. ``table`` says
the means over draws, and differences from temperature scaling with Student's intervals over class splits. ``ladder``
trains on severity 1 of ``shapes`` and tests on severities 1 to 5, which no head is told.
"""

import argparse
import json
import time
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t as student

from promptcal import experiment
from promptcal.assembled import assemble, predict_all
from promptcal.calibrators import build_calibrator
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import compose
from promptcal.data import load_task, read_card
from promptcal.diagnostics import residual_temperature
from promptcal.heads.effects import METRICS, resampled
from promptcal.heads.held_out import Episode, fit_held_out
from promptcal.heads.loglinear import LogLinearHead
from promptcal.preparation import prepare
from promptcal.training.predict import predict

SETTINGS = {
    "shapes": ["dataset=shapes", "dataset.reader.classes=20", "training.epochs=25", "features.views=5"],
    "digits": ["dataset=digits", "protocol.test=undrawn", "training.epochs=100", "features.views=10"],
}
REPEATS = {"shapes": 1, "digits": 3}
"""How often the base classes are divided: five folds of ten, or two of five."""
POST_HOC = (
    "none",
    "temperature",
    "dac",
    "dac+temperature",
    "sals",
    "sals+temperature",
    "route",
    "loglinear",
    "calattn",
)
TRAINED = {"calattn joint": "joint", "calattn separate": "separate"}


def config_of(dataset: str, split_seed: int, seed: int, place: Path, *more: str):
    """The configuration of a draw."""
    own = [f"split_seed={split_seed}", f"seed={seed}", f"runs={place / 'runs'}", f"system.cache={place / 'cache'}"]
    return compose([*SETTINGS[dataset], "method=coop", "calibrators=[none]", *own, *more])


def draw(dataset: str, split_seed: int, seed: int, place: Path) -> list[dict]:
    """Every row of one draw."""
    rows: list[dict] = []
    config = config_of(dataset, split_seed, seed, place)
    prepared = prepare(config)
    plain = experiment.train_and_predict(prepared, quiet=True)
    val = plain["val"]
    moved = {name: build_calibrator(name).fit(val) for name in POST_HOC}
    about = {}

    def trained(fold):
        return experiment.train_and_predict(replace(prepared, splits=fold), quiet=True)

    for mode in ("images", "classes"):
        head = LogLinearHead(mode=mode, repeats=REPEATS[dataset])
        started = time.perf_counter()
        seen = [trained(fold) for fold in head.divided(prepared.splits.train, seed)]
        episodes = [Episode(one["base"], one.get("novel")) for one in seen]
        moved[f"loglinear {mode}"] = fitted = fit_held_out(head.calibrator, val, episodes)
        about[mode] = {**fitted.held_out_, "seconds": time.perf_counter() - started}
        if mode == "classes":
            about["weights"] = dict(zip(fitted.columns, fitted.weights_.tolist(), strict=True))
            moved["loglinear classes, no gate"] = ungated(head, val, episodes)
    for split in ("base", "novel"):
        test = plain[split]
        for name, calibrator in moved.items():
            rows.append(row_of(name, split, calibrator.transform(test), test))
        rng = np.random.default_rng(seed)
        for name in ("loglinear images", "loglinear classes, no gate"):
            temperatures = moved[name].temperatures(test)
            rows.append(row_of(f"{name}, permuted", split, divide_rows(test, rng.permutation(temperatures)), test))
            rows.append(row_of(f"{name}, mean", split, divide_rows(test, float(temperatures.mean())), test))
    for name, mode in TRAINED.items():
        own = prepare(config_of(dataset, split_seed, seed, place, "head=calattn", f"head.mode={mode}"))
        seen = experiment.train_and_predict(own, quiet=True)
        behind = build_calibrator("temperature").fit(seen["val"])
        for split in ("base", "novel"):
            rows.append(row_of(name, split, seen[split], seen[split]))
            rows.append(row_of(f"{name}, then TS", split, behind.transform(seen[split]), seen[split]))
    draw_of = {"dataset": dataset, "split_seed": split_seed, "seed": seed}
    return [{**draw_of, **row} for row in rows] + [{**draw_of, "about": about}]


def ungated(head: LogLinearHead, val, episodes):
    """The head that the gate would judge, kept whatever it says."""
    from promptcal.calibrators.instance_fit import Rows, fit_worse, temperature_scaling
    from promptcal.heads.held_out import rows_of

    fitted = head.calibrator.fit(val)
    parts = [rows_of(fitted, episode) for episode in episodes]
    base, novel = Rows.stacked([part.base for part in parts]), Rows.stacked([part.novel for part in parts])
    found = fit_worse(base, novel, fitted.penalty, fitted.clip)
    own = temperature_scaling(fitted.rows_of(val, fitted.reference_), fitted.clip)
    fitted.adopt(replace(own, shift=found.shift, weights=found.weights))
    return fitted


def row_of(name: str, split: str, moved, test) -> dict:
    """The numbers of a calibrator on a split."""
    values = resampled(moved, np.ones((1, len(moved.labels))))[:, 0]
    s = np.ones(len(test.labels)) if moved.temperature is None else moved.temperature
    right = current_logits(test).argmax(axis=1) == test.labels
    varies = np.ptp(s) > 1e-9 and 0 < right.sum() < len(right)
    return {
        "calibrator": name,
        "split": split,
        **dict(zip(METRICS, values.tolist(), strict=True)),
        "accuracy": float(right.mean()),
        "residual": residual_temperature(moved),
        "s_mean": float(np.mean(s)),
        "s_sd": float(np.std(s)),
        "s_right": float(np.corrcoef(s, right)[0, 1]) if varies else None,
    }


def measure(arguments: argparse.Namespace) -> None:
    """Measure every draw that is not there yet."""
    torch.set_num_threads(1)
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    for split_seed in range(arguments.splits):
        for seed in arguments.seeds:
            file = out / f"{split_seed:02d}-{seed}.jsonl"
            if file.exists():
                continue
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = draw(arguments.dataset, split_seed, seed, out)
            temporary = file.with_suffix(".tmp")
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
            temporary.rename(file)
            print(f"{file.name} {time.perf_counter() - started:.1f} s", flush=True)


def read(place: Path) -> tuple[list[dict], list[dict]]:
    """The rows of all draws, and what their heads saw."""
    rows = [json.loads(line) for file in sorted(place.glob("*-*.jsonl")) for line in file.read_text().splitlines()]
    return [row for row in rows if "calibrator" in row], [row for row in rows if "about" in row]


def interval(values: dict[int, list[float]]) -> tuple[float, float, float]:
    """The mean over class splits of the means over seeds, and Student's 95 % interval."""
    means = np.array([np.mean(one) for one in values.values()])
    k = len(means)
    half = float(student.ppf(0.975, k - 1)) * means.std(ddof=1) / np.sqrt(k) if k > 1 else float("nan")
    return float(means.mean()), float(means.mean() - half), float(means.mean() + half)


def table(arguments: argparse.Namespace) -> None:
    """Print what was measured, as markdown."""
    rows, seen = read(arguments.place)
    values = {(r["split_seed"], r["seed"], r["split"], r["calibrator"]): r for r in rows}
    draws = sorted({(r["split_seed"], r["seed"]) for r in rows})
    names = list(dict.fromkeys(r["calibrator"] for r in rows))
    print(f"{len(draws)} draws, {len({d[0] for d in draws})} class splits; accuracy ", end="")
    accuracy = {s: np.mean([values[*d, s, "none"]["accuracy"] for d in draws]) for s in ("base", "novel")}
    print(f"{accuracy['base']:.3f} base, {accuracy['novel']:.3f} novel\n")
    for split in ("base", "novel"):
        less = " | ".join(f"{metric.upper()} less TS (95 %)" for metric in METRICS)
        print(f"| {split} | NLL | {less} | left to T | s and right |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for name in names:
            cells = []
            for metric in METRICS:
                less = defaultdict(list)
                for d in draws:
                    mine, ts = values[*d, split, name], values[*d, split, "temperature"]
                    less[d[0]].append(mine[metric] - ts[metric])
                cells.append("{:+.4f} ({:+.4f} to {:+.4f})".format(*interval(less)))
            mine = [values[*d, split, name] for d in draws]
            nll, left = np.mean([m["nll"] for m in mine]), np.exp(np.mean([np.log(m["residual"]) for m in mine]))
            right = [m["s_right"] for m in mine if m["s_right"] is not None]
            said = f"{np.mean(right):+.3f}" if right else ""
            print(f"| {name} | {nll:.4f} | {' | '.join(cells)} | {left:.3f} | {said} |")
        print()
    kept = [one["about"]["classes"]["kept"] for one in seen]
    gains = [one["about"]["classes"]["gain"] for one in seen]
    print(f"the gate kept {sum(kept)} of {len(kept)} heads; mean gain of classes left out {np.mean(gains):+.4f} nats")
    for mode in ("images", "classes"):
        seconds = np.mean([one["about"][mode]["seconds"] for one in seen])
        print(f"{mode}: {seen[0]['about'][mode]['episodes']} trainings, {seconds:.1f} s")
    columns = seen[0]["about"]["weights"]
    weights = {name: np.mean([one["about"]["weights"][name] for one in seen]) for name in columns}
    print("mean weights: " + ", ".join(f"{name} {weight:+.3f}" for name, weight in weights.items()))


def ladder(arguments: argparse.Namespace) -> None:
    """Residual temperatures by severity of the test images."""
    torch.set_num_threads(1)
    found: dict[tuple[str, str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for split_seed in range(arguments.splits):
        config = config_of("shapes", split_seed, 1, arguments.out, "dataset.reader.severity=1")
        prepared = prepare(config)
        work = assemble(prepared, quiet=True)
        experiment.train(prepared, work, quiet=True, say=lambda line: None)
        val = predict_all(prepared, work)["val"]
        fitted = {"temperature": build_calibrator("temperature").fit(val)}
        fitted["loglinear val"] = build_calibrator("loglinear").fit(val)

        def trained(fold, prepared=prepared):
            return experiment.train_and_predict(replace(prepared, splits=fold), quiet=True)

        for mode in ("images", "classes"):
            head = LogLinearHead(mode=mode)
            fitted[f"loglinear {mode}"] = head.fitted(val, head.divided(prepared.splits.train, 1), trained)
        for severity in range(1, 6):
            card = read_card(
                config_of("shapes", split_seed, 1, arguments.out, f"dataset.reader.severity={severity}").dataset
            )
            images = replace(work.images, images=load_task(card, None).images)
            for split, bound in work.targets.items():
                samples = prepared.splits.targets[split].test[:: arguments.every]
                test = predict(bound, images.test_batches(samples), samples, split=split)
                for name, calibrator in {"none": build_calibrator("none"), **fitted}.items():
                    moved = calibrator.transform(test)
                    found[name, split, severity][split_seed].append(residual_temperature(moved))
        print(f"class split {split_seed}", flush=True)
    for split in ("base", "novel"):
        print(f"\n| {split} | " + " | ".join(f"severity {severity}" for severity in range(1, 6)) + " |")
        print("| --- |" + " --- |" * 5)
        for name in dict.fromkeys(key[0] for key in found):
            cells = ["{:.3f} ({:.3f} to {:.3f})".format(*interval(found[name, split, s])) for s in range(1, 6)]
            print(f"| {name} | {' | '.join(cells)} |")


def main() -> None:
    """Parse and do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("dataset", choices=list(SETTINGS))
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--splits", type=int, default=20)
    one.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    one.set_defaults(do=measure)
    two = commands.add_parser("table")
    two.add_argument("place", type=Path)
    two.set_defaults(do=table)
    three = commands.add_parser("ladder")
    three.add_argument("--out", type=Path, required=True)
    three.add_argument("--splits", type=int, default=5)
    three.add_argument("--every", type=int, default=2, help="take every so many test images")
    three.set_defaults(do=ladder)
    arguments = parser.parse_args()
    arguments.do(arguments)


if __name__ == "__main__":
    main()
