"""What an instance temperature adds on small networks: every number of docs/calattn.md.

    python scripts/calattn_study.py train   --images FOLDER --runs runs/calattn     # an hour or two on one core
    python scripts/calattn_study.py tables  --runs runs/calattn                     # Markdown from the finished runs
    python scripts/calattn_study.py cost                                            # parameters, FLOPs, overhead

FOLDER holds cifar10/ and mnist/ with train/CLASS/IMAGE and test/CLASS/IMAGE; without it the digits alone are used.
Training can be stopped and started again: finished runs are found.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.stats import t as student

from promptcal.calibrators import fit_for
from promptcal.config import build, compose
from promptcal.diagnostics import linear_cka, residual_temperature
from promptcal.experiment import run
from promptcal.metrics import accuracy, aurc, ece, nll
from promptcal.models.assembly import classifier_of
from promptcal.models.temperature import CalAttn
from promptcal.run import RunFolder
from promptcal.types import ClassNames, Predictions

SEEDS = (1, 2, 3)
MODELS = ("vit_mini", "swin_mini")
VARIANTS = {
    "CE": [],
    "CE + Brier": ["plugin=[ce_brier]"],
    "global scale": ["head=global"],
    "joint": ["head=calattn"],
    "stop_z": ["head=calattn", "head.mode=stop_z"],
    "separate": ["head=calattn", "head.mode=separate"],
}
FOLDERS = {"mnist": (20, 0.0), "cifar10": (10, 0.5)}
"""Epochs and probability of a flip of the data sets that lie in folders."""


def overrides(dataset: str, images: Path | None) -> list[str]:
    """What chooses a data set."""
    if dataset == "digits":
        return ["dataset=digits"]
    epochs, flip = FOLDERS[dataset]
    return [
        "dataset=folder",
        f"dataset.name={dataset}",
        f"dataset.title={dataset}",
        f"dataset.path={images}/{dataset}",
        f"dataset.augment.flip={flip}",
        f"training.epochs={epochs}",
    ]


def train(images: Path | None, runs: Path, datasets: list[str], models: list[str]) -> None:
    """Every training of the tables, one after the other, and an index of their folders."""
    index = {}
    todo = [(d, m, s, v) for d in datasets for m in models for s in SEEDS for v in VARIANTS]
    for dataset, model, seed, variant in todo:
        started = time.perf_counter()
        chosen = ["protocol=train", f"model={model}", *overrides(dataset, images), *VARIANTS[variant]]
        folder = run(compose([*chosen, f"seed={seed}", f"runs={runs}", "calibrators=[none]"]), quiet=True)
        index[f"{dataset}/{model}/{seed}/{variant}"] = str(folder.path)
        (runs / f"index_{'_'.join(models)}_{'_'.join(datasets)}.json").write_text(json.dumps(index, indent=1))
        print(f"{dataset} {model} seed {seed} {variant}: {time.perf_counter() - started:.0f} s", flush=True)


@dataclass(frozen=True)
class Done:
    """The finished runs."""

    folders: dict[str, RunFolder]

    def split(self, dataset: str, model: str, seed: int, variant: str, split: str) -> Predictions:
        """The predictions of a split."""
        return self.folders[f"{dataset}/{model}/{seed}/{variant}"].predictions(split)

    def both(self, dataset: str, model: str, seed: int, variant: str) -> tuple[Predictions, Predictions]:
        """Validation and test predictions."""
        return self.split(dataset, model, seed, variant, "val"), self.split(dataset, model, seed, variant, "test")


def calibrated(name: str, val: Predictions, test: Predictions) -> Predictions:
    """The test predictions after a calibrator fitted on validation."""
    return fit_for(name, {"val": val}).transform(test)


def plain(predictions: Predictions) -> Predictions:
    """The logits of a model with its head taken off."""
    return predictions.replace(temperature=None)


def permuted(predictions: Predictions) -> Predictions:
    """The temperatures of other images of the same split: a head without its knowledge of the image."""
    assert predictions.temperature is not None
    order = np.random.default_rng(0).permutation(len(predictions.labels))
    return predictions.replace(temperature=predictions.temperature[order])


def averaged(predictions: Predictions) -> Predictions:
    """The mean temperature for every image."""
    assert predictions.temperature is not None
    return predictions.replace(temperature=np.full_like(predictions.temperature, predictions.temperature.mean()))


Pair = tuple[Predictions, Predictions]
ROWS: dict[str, tuple[str, Callable[[Predictions, Predictions], Predictions]]] = {
    "CE": ("CE", lambda val, test: test),
    "CE, TS": ("CE", lambda val, test: calibrated("temperature", val, test)),
    "CE, SATS": ("CE", lambda val, test: calibrated("sats", val, test)),
    "CE, logit-MLP": ("CE", lambda val, test: calibrated("logit_mlp", val, test)),
    "CE + Brier": ("CE + Brier", lambda val, test: test),
    "CE + Brier, TS": ("CE + Brier", lambda val, test: calibrated("temperature", val, test)),
    "global scale": ("global scale", lambda val, test: test),
    "global scale, TS": ("global scale", lambda val, test: calibrated("temperature", val, test)),
    "joint": ("joint", lambda val, test: test),
    "joint, TS": ("joint", lambda val, test: calibrated("temperature", val, test)),
    "joint, permuted s, TS": ("joint", lambda val, test: calibrated("temperature", permuted(val), permuted(test))),
    "joint, mean(s), TS": ("joint", lambda val, test: calibrated("temperature", averaged(val), averaged(test))),
    "joint, head off, TS": ("joint", lambda val, test: calibrated("temperature", plain(val), plain(test))),
    "stop_z": ("stop_z", lambda val, test: test),
    "stop_z, TS": ("stop_z", lambda val, test: calibrated("temperature", val, test)),
    "separate": ("separate", lambda val, test: test),
    "separate, TS": ("separate", lambda val, test: calibrated("temperature", val, test)),
}
METRICS = {"accuracy": accuracy, "NLL": nll, "AURC": aurc, "ECE": ece}
BASELINE = "CE, TS"


def measured(done: Done, dataset: str, model: str) -> dict[str, np.ndarray]:
    """For each row, the metrics [seeds, metrics]."""
    found = {}
    for row, (variant, finish) in ROWS.items():
        values = []
        for seed in SEEDS:
            answered = finish(*done.both(dataset, model, seed, variant))
            probs = answered.probs()
            values.append([metric(probs, answered.labels) for metric in METRICS.values()])
        found[row] = np.array(values, dtype=float)
    return found


def interval(differences: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of the 95 % t-interval over seeds."""
    half = student.ppf(0.975, len(differences) - 1) * differences.std(ddof=1) / len(differences) ** 0.5
    return float(differences.mean()), float(half)


def table(done: Done, dataset: str, model: str) -> Iterator[str]:
    """The Markdown table of a data set and a model."""
    found = measured(done, dataset, model)
    members = [calibrated("temperature", *done.both(dataset, model, seed, "CE")) for seed in SEEDS]
    together = np.mean([member.probs() for member in members], axis=0)
    yield f"### {dataset}, {model}\n"
    yield "| row | accuracy % | NLL | ΔNLL to CE, TS | AURC | ΔAURC ×1000 | ECE % | ΔECE points |"
    yield "|---|---|---|---|---|---|---|---|"
    for row, values in found.items():
        mean = values.mean(axis=0)
        deltas = [interval(values[:, column] - found[BASELINE][:, column]) for column in (1, 2, 3)]
        said = ["", "", ""]
        if row != BASELINE:
            said = [
                f"{delta * factor:+.{digits}f} ± {half * factor:.{digits}f}"
                for (delta, half), factor, digits in zip(deltas, (1, 1000, 100), (3, 1, 2), strict=True)
            ]
        yield (
            f"| {row} | {100 * mean[0]:.1f} | {mean[1]:.3f} | {said[0]} | {mean[2]:.4f} | {said[1]} | "
            f"{100 * mean[3]:.2f} | {said[2]} |"
        )
    labels = members[0].labels
    yield (
        f"| ensemble of 3 (CE, TS) | {100 * accuracy(together, labels):.1f} | {nll(together, labels):.3f} | | "
        f"{aurc(together, labels):.4f} | | {100 * ece(together, labels):.2f} | |"
    )


PAIRS = (("norm_before", "confidence"), ("norm", "confidence"), ("norm", "correct"), ("norm", "s"), ("s", "correct"))


def correlations_of(folder: RunFolder) -> list[str]:
    """Pearson's r and Spearman's ρ on the test images, as the run stored them."""
    rows = [json.loads(line) for line in (folder.path / "diagnostics.jsonl").read_text().splitlines()]
    found = {(r["quantity"], r["with"]): r for r in rows if r["kind"] == "correlation" and r["split"] == "test"}
    said = []
    for pair in PAIRS:
        row = found.get(pair)
        known = row is not None and row["pearson"] is not None
        said.append(f"{row['pearson']:+.2f} / {row['spearman']:+.2f}" if known else "–")
    return said


def heads(done: Done, dataset: str, model: str) -> Iterator[str]:
    """A line of the table of heads for each seed: s, its spread, what a temperature would still do, correlations."""
    for variant in ("joint", "stop_z", "separate"):
        for seed in SEEDS:
            test = done.split(dataset, model, seed, variant, "test")
            s = test.require("temperature").astype(np.float64)
            numbers = [f"{s.mean():.2f}", f"{s.std() / s.mean():.3f}", f"{residual_temperature(test):.2f}"]
            cells = [dataset, model, variant, str(seed), *numbers]
            cells += correlations_of(done.folders[f"{dataset}/{model}/{seed}/{variant}"])
            yield f"| {' | '.join(cells)} |"


def embeddings(predictions: Predictions) -> np.ndarray:
    """z, not normalised."""
    return predictions.require("image_features") * predictions.require("norms")[:, None]


def backbones(done: Done, dataset: str, model: str) -> str:
    """A line of the table of backbones: how alike CE's and joint's are, and the temperature each still needs."""
    alike, apart, ce_t, joint_t = [], [], [], []
    for seed in SEEDS:
        ce, joint = (done.split(dataset, model, seed, variant, "test") for variant in ("CE", "joint"))
        other = done.split(dataset, model, seed % len(SEEDS) + 1, "CE", "test")
        alike.append(linear_cka(embeddings(ce), embeddings(joint)))
        apart.append(linear_cka(embeddings(ce), embeddings(other)))
        ce_t.append(residual_temperature(ce))
        joint_t.append(residual_temperature(plain(joint)))
    cells = [f"{np.mean(values):.3f}" for values in (alike, apart, ce_t, joint_t)]
    return f"| {dataset} | {model} | {' | '.join(cells)} |"


def tables(runs: Path) -> None:
    """Print everything that can be said of the finished runs."""
    index: dict[str, str] = {}
    for file in sorted(runs.glob("index_*.json")):
        index |= json.loads(file.read_text())
    done = Done({name: RunFolder(Path(path)) for name, path in index.items()})
    settings = [(d, m) for d in ("digits", *FOLDERS) for m in MODELS]
    whole = [(d, m) for d, m in settings if all(f"{d}/{m}/{s}/{v}" in done.folders for s in SEEDS for v in VARIANTS)]
    for dataset, model in whole:
        print("\n".join(table(done, dataset, model)), end="\n\n")
    names = " | ".join(f"{quantity}, {other}" for quantity, other in PAIRS)
    print(f"| data | model | head | seed | mean s | CV(s) | residual T* | {names} |\n|{'---|' * 12}")
    for dataset, model in whole:
        print("\n".join(heads(done, dataset, model)))
    print("\n| data | model | CKA CE, joint | CKA CE, CE | T* CE | T* joint, head off |\n|---|---|---|---|---|---|")
    for dataset, model in whole:
        print(backbones(done, dataset, model))


def cost() -> None:
    """Print what a head costs: parameters and FLOPs by count, overhead by processor time."""
    print("| backbone | d | hidden | parameters | of the backbone | FLOPs an image | of the backbone |")
    print("|---|---|---|---|---|---|---|")
    import timm
    from torch.utils.flop_counter import FlopCounterMode

    for name in ("deit_small_patch16_224", "vit_base_patch16_224", "swin_small_patch4_window7_224"):
        with torch.device("meta"):
            backbone = timm.create_model(name, num_classes=100).eval()
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                backbone(torch.empty(1, 3, 224, 224))
        parameters = sum(parameter.numel() for parameter in backbone.parameters())
        for hidden in (32, 64, 128):
            head = CalAttn(backbone.num_features, hidden=hidden)
            own = sum(parameter.numel() for parameter in head.parameters())
            flops = 2 * hidden * (backbone.num_features + 1)
            print(
                f"| {name} | {backbone.num_features} | {hidden} | {own:,} | {own / parameters:.3%} | {flops:,} | "
                f"{flops / counter.get_total_flops():.6%} |"
            )
    torch.set_num_threads(1)
    print("\n| model | batch | CPU ms without | with | overhead |\n|---|---|---|---|---|")
    for model in MODELS:
        pixels = torch.randn(64, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        networks = {head: made(model, head) for head in ("none", "calattn")}
        times: dict[str, list[float]] = {head: [] for head in networks}
        with torch.no_grad():
            for _ in range(40):  # taken in turns, so that both meet the same machine
                for head, network in networks.items():
                    started = time.process_time()
                    network(pixels)
                    times[head].append(time.process_time() - started)
        without, with_head = (1000 * float(np.median(times[head][10:])) for head in ("none", "calattn"))
        print(f"| {model} | 64 | {without:.2f} | {with_head:.2f} | {with_head / without - 1:+.1%} |")


def made(model: str, head: str) -> torch.nn.Module:
    """A small network with or without its head, for evaluation."""
    config = compose([f"model={model}", f"head={head}"])
    classes = ClassNames(tuple(map(str, range(10))))
    network = classifier_of(config, build(config.model), classes, torch.Generator().manual_seed(0))
    assert isinstance(network, torch.nn.Module)
    return network.eval()


def main() -> None:
    """Train, print the tables, or measure the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "tables", "cost"])
    parser.add_argument("--images", type=Path, default=None)
    parser.add_argument("--runs", type=Path, default=Path("runs/calattn"))
    parser.add_argument("--datasets", nargs="+", default=None, choices=["digits", *FOLDERS])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    arguments = parser.parse_args()
    if arguments.what == "train":
        datasets = arguments.datasets or ["digits", *(FOLDERS if arguments.images else ())]
        arguments.runs.mkdir(parents=True, exist_ok=True)
        train(arguments.images, arguments.runs, datasets, arguments.models)
    elif arguments.what == "tables":
        tables(arguments.runs)
    else:
        cost()


if __name__ == "__main__":
    main()
