"""Print the tables of docs/vit_calibrator.md: a small ViT on the digits, before and after each stage.

    python scripts/table_vit_calibrator.py [--seeds 3] [--runs runs] [--pictures docs/vit_calibrator.png]

Trains the bases, then each stage on each of them; finished runs are found and not repeated. Intervals: 95 %, t,
over seeds. Everything is measured on the test images, before and after temperature scaling fitted on the
validation images of the base.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
import torch
from scipy import stats

from promptcal.assembled import assemble
from promptcal.calibrators import fit_for
from promptcal.config import compose
from promptcal.experiment import run
from promptcal.explain import (
    attention_maps,
    foreground_patches,
    foreground_share,
    patch_grid,
    patch_scores,
    relevance,
    rollout,
)
from promptcal.explain.pictures import dimension_relevance, foreground_by_depth, token_relevance
from promptcal.metrics import accuracy, ece, nll
from promptcal.models.vit_calibrator import CalibratedViT
from promptcal.preparation import prepare
from promptcal.run import RunFolder

COMMON = (
    "protocol=train",
    "model=vit_mini",
    "model.options={patch_size: 8, embed_dim: 64, depth: 4, num_heads: 4}",
    "dataset=digits",
    "training.batch_size=64",
    "training.lr=0.001",
    "training.pad=4",
    "calibrators=[none]",
)
SAME = ["training.epochs=10", "training.warmup_epochs=1"]
"""The rest of the stages' training is that of the base."""

STAGES = {
    "base": None,
    "probe": ["method=classifier", "learner.trains=classifier", *SAME],
    "token": ["method=vit_calibrator_token"],
    "dimension": ["method=vit_calibrator_dimension"],
    "both": ["method=vit_calibrator"],
}
FEEDBACK = {
    "1 source, target 1": (1, 1),
    "1 source, target 2": (1, 2),
    "1 source, target 3": (1, 3),
    "2 sources, target 2": (2, 2),
    "3 sources, target 2": (3, 2),
}
"""Of four blocks."""

SIZES = {
    "width 32, 4 heads": "model.options.embed_dim=32",
    "width 64, 1 head": "model.options.num_heads=1",
    "width 64, 4 heads": "model.options.embed_dim=64",
    "width 64, 8 heads": "model.options.num_heads=8",
    "width 96, 4 heads": "model.options.embed_dim=96",
}


@dataclass(frozen=True)
class Study:
    """Where runs go, how many seeds there are, and the epochs of a base."""

    runs: str
    seeds: int
    epochs: int

    def base(self, seed: int, *overrides: str) -> RunFolder:
        """The trained model that the stages mend."""
        return self._run(f"seed={seed}", f"training.epochs={self.epochs}", *overrides)

    def mended(self, base: RunFolder, seed: int, *overrides: str) -> RunFolder:
        """A run of ViT-Calibrator on a base."""
        return self._run(f"seed={seed}", f"model.weights={base.path}", *overrides)

    def _run(self, *overrides: str) -> RunFolder:
        print("…", *overrides, file=sys.stderr, flush=True)
        return run(compose([*COMMON, f"runs={self.runs}", *overrides]), quiet=True)

    def each(self) -> Iterator[int]:
        """The seeds."""
        return iter(range(1, self.seeds + 1))


def top_5(probs: np.ndarray, labels: np.ndarray) -> float:
    """The share of images whose class is among the five most probable."""
    return float((np.argsort(-probs, axis=1)[:, :5] == labels[:, None]).any(axis=1).mean())


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "top-1": accuracy,
    "top-5": top_5,
    "ECE": ece,
    "NLL": nll,
}


def measured(folder: RunFolder) -> list[float]:
    """Every metric on the test images, then ECE and NLL after temperature scaling."""
    everything = {name: folder.predictions(name) for name in ("val", "test")}
    test = everything["test"]
    scaled = fit_for("temperature", everything).transform(test)
    values = [metric(test.probs(), test.labels) for metric in METRICS.values()]
    return values + [METRICS[name](scaled.probs(), scaled.labels) for name in ("ECE", "NLL")]


COLUMNS = (*METRICS, "ECE, TS", "NLL, TS")


def interval(values: Sequence[float], *, percent: bool = True) -> str:
    """The mean over seeds and its 95 % t interval."""
    factor = 100 if percent else 1
    array = factor * np.asarray(values)
    half = stats.t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / len(array) ** 0.5 if len(array) > 1 else np.nan
    return f"{array.mean():.2f} ± {half:.2f}" if percent else f"{array.mean():.4f} ± {half:.4f}"


def table(head: str, rows: dict[str, list[list[float]]]) -> str:
    """A Markdown table: rows by name, each with the metrics of every seed."""
    lines = [(head, *COLUMNS), ("---",) * (1 + len(COLUMNS))]
    for name, seeds in rows.items():
        columns = zip(COLUMNS, zip(*seeds, strict=True), strict=True)
        lines.append((name, *(interval(values, percent="NLL" not in column) for column, values in columns)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def differences(rows: dict[str, list[list[float]]], base: str = "base") -> dict[str, list[list[float]]]:
    """Each row less the base of the same seed."""
    return {
        name: [[a - b for a, b in zip(one, other, strict=True)] for one, other in zip(seeds, rows[base], strict=True)]
        for name, seeds in rows.items()
        if name != base
    }


def stages(study: Study, *model: str) -> dict[str, list[list[float]]]:
    """The metrics of the base, of its last layer trained on, and of each stage, a list of seeds each."""
    rows: dict[str, list[list[float]]] = {name: [] for name in STAGES}
    for seed in study.each():
        base = study.base(seed, *model)
        for name, overrides in STAGES.items():
            folder = base if overrides is None else study.mended(base, seed, *model, *overrides)
            rows[name].append(measured(folder))
    return rows


def feedback(study: Study) -> dict[str, list[list[float]]]:
    """Stage 1 by how many blocks feed back, and to which."""
    rows: dict[str, list[list[float]]] = {"base": [], **{name: [] for name in FEEDBACK}}
    for seed in study.each():
        base = study.base(seed)
        rows["base"].append(measured(base))
        for name, (sources, target) in FEEDBACK.items():
            chosen = ["method=vit_calibrator_token", f"learner.sources={sources}", f"learner.target={target}"]
            rows[name].append(measured(study.mended(base, seed, *chosen)))
    return rows


def network(folder: RunFolder) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    """The network of a finished run, and the pixels and labels of its test images."""
    prepared = prepare(folder.config)
    work = assemble(prepared, quiet=True)
    work.learner.load_state_dict(folder.learner_state())
    work.learner.eval()
    batches = list(work.images.test_batches(prepared.splits.targets["test"].test))
    return work.learner.backbone, torch.cat([b.pixels for b in batches]), torch.cat([b.labels for b in batches])


def cost(folder: RunFolder) -> str:
    """What the second pass costs: blocks run again, and seconds an image against the frozen model's."""
    model, pixels, _ = network(folder)
    assert isinstance(model, CalibratedViT)

    def seconds(net: torch.nn.Module) -> float:
        times = []
        with torch.inference_mode():
            for _ in range(20):
                started = time.perf_counter()
                net(pixels[:256])
                times.append(time.perf_counter() - started)
        return float(np.median(times))

    learned = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    frozen = sum(parameter.numel() for parameter in model.backbone.parameters())
    ratio = seconds(model) / seconds(model.backbone)
    return (
        f"{100 * model.second_pass:.0f} % of the blocks run again; {ratio:.2f} times the time of the frozen model; "
        f"{learned:,} learned parameters beside {frozen:,}"
    )


def pictures(base: RunFolder, mended: RunFolder, path: Path) -> None:
    """Three pictures side by side: tokens of one image, dimensions by class, foreground by depth."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    model, pixels, labels = network(base)
    masks = network(mended)[0].masks
    found = relevance(model, pixels[:512], labels[:512])
    flow = rollout(attention_maps(model, pixels[:512]))
    foreground = foreground_patches(pixels[:512], patch_grid(model))
    of_tokens = found.of_tokens()[1:, :, 1:]
    shares = {
        "rollout into the class token": foreground_share(patch_scores(model, flow), foreground),
        "relevance of the patches": foreground_share(of_tokens[:-1], foreground),
    }
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4))
    grey = pixels[0].mean(dim=0)
    grey = (grey - grey.min()) / (grey.max() - grey.min())
    token_relevance(
        grey.numpy(), found.of_tokens()[0, 0, 1:].numpy(), patch_grid(model), left, title=f"a {int(labels[0])}"
    )
    means = torch.stack([found.features[labels[:512] == c].mean(dim=0) for c in range(10)])
    dimension_relevance(means.numpy(), [str(c) for c in range(10)], middle, kept=masks.numpy())
    area = float(foreground.float().mean())
    foreground_by_depth({name: share.numpy() for name, share in shares.items()}, right, area=area)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"\nforeground: {100 * area:.1f} % of the patches; by depth:")
    for name, share in shares.items():
        print(f"  {name}: {', '.join(f'{100 * value:.1f}' for value in share.mean(dim=1).tolist())} %")
    kept = masks.sum(dim=1)
    print(f"masks keep {int(kept.min())} to {int(kept.max())} of {masks.shape[1]} dimensions")


def main() -> None:
    """All tables, as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60, help="of the base")
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--sizes", action="store_true", help="also the trend with width and heads")
    given = parser.parse_args()
    study = Study(given.runs, given.seeds, given.epochs)
    rows = stages(study)
    print(table("stages", rows), table("less the base", differences(rows)), sep="\n\n")
    rows = feedback(study)
    print("\n" + table("stage 1", rows), table("less the base", differences(rows)), sep="\n\n")
    base = study.base(1)
    mended = study.mended(base, 1, *(STAGES["both"] or []))
    print(f"\n{cost(mended)}")
    if given.pictures:
        pictures(base, mended, given.pictures)
    if given.sizes:
        for name, override in SIZES.items():
            print("\n" + table(name, differences(stages(study, override))))


if __name__ == "__main__":
    main()
