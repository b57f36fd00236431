"""Time the text pass against a plain implementation of the published methods: every class, 77 tokens, every step.

    python scripts/bench_text.py [--quick] [--threads 2] [--cases coop,cocoop,maple,kgcoop] [--json results.json]
    python scripts/bench_text.py --threads 1 --clock cpu        # on a machine that others use too

One step is forward, loss and backward to the learned tensors, on ViT-B/16's text tower with random weights (nothing is
downloaded) and ImageNet's class names. Both arms alternate in one process with a matrix-product probe between them, so
that a disturbance meets both; held memory is what one forward pass adds to the resident set of a fresh process. The
plain arm runs where it is expected to fit the limits; elsewhere its time is computed from its FLOPs, at the best rate
of the measured cases of the method, and marked with ~. A ratio above that of the FLOPs means that the machine was
disturbed, or that the plain arm's larger tensors fall out of its caches.
"""

import argparse
import gc
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES
from torch import Tensor
from torch.nn import functional as F

from promptcal.models.causal_text import CausalText, PlainText
from promptcal.models.clip import FrozenClip
from promptcal.models.load import open_clip_model
from promptcal.models.text_plan import plan
from promptcal.types import Prompts

ARCHITECTURE, LOGIT_SCALE, MAPLE_DEPTH, KNOWLEDGE_WEIGHT, META_REDUCTION = "ViT-B-16-quickgelu", 100.0, 9, 8.0, 16
PLAIN_BYTES_A_ROW = 5e5  # what the plain arm holds for a token row until the backward pass: 12 layers of 20 widths
Row = dict[str, Any]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass(frozen=True)
class Case:
    """One method at one size."""

    method: str
    classes: int
    context: int
    batch: int = 1

    @property
    def label(self) -> str:
        """What the table calls it."""
        return f"{self.method:7} C={self.classes:<4} M={self.context:<3} b={self.batch}"


def cases(methods: list[str], quick: bool) -> list[Case]:
    """The cases of the table, the cheap ones of each method first."""
    sizes = (10, 50) if quick else (10, 50, 100, 500)
    table = [Case("coop", c, m) for c in sizes for m in ((16,) if quick else (4, 16))]
    table += [Case(method, c, m) for method, m in (("kgcoop", 4), ("maple", 2)) for c in sizes[:3]]
    table += [Case("cocoop", c, 4, b) for b in ((1,) if quick else (1, 8)) for c in sizes[:3]]
    return [case for case in table if case.method in methods]


class Scene:
    """A case with its model, learned tensors and image features: both arms see the same."""

    def __init__(self, clip: FrozenClip, case: Case) -> None:
        self.clip, self.case = clip, case
        names = list(dict.fromkeys(IMAGENET_CLASSNAMES))
        random.Random(0).shuffle(names)
        tail = "of a {}." if case.method == "maple" else "{}."
        self.layout = plan(names[: case.classes], case.context, clip.tokens, tail=tail)
        generator = torch.Generator().manual_seed(0)

        def draw(*shape: int, scale: float = 0.02) -> Tensor:
            return torch.randn(*shape, generator=generator) * scale

        width, joint = clip.text_width, clip.embed_dim
        self.images = F.normalize(draw(case.batch, joint), dim=-1)
        self.labels = torch.randint(case.classes, (case.batch,), generator=generator)
        self.frozen = F.normalize(draw(case.classes, joint), dim=-1)
        self.learned = [draw(case.context, width).requires_grad_()]
        if case.method == "cocoop":
            inner = joint // META_REDUCTION
            shapes = ((inner, joint), (inner,), (width, inner), (width,))
            self.learned += [draw(*shape).requires_grad_() for shape in shapes]
        if case.method == "maple":
            self.learned += [draw(case.context, width).requires_grad_() for _ in range(MAPLE_DEPTH - 1)]
        self.fast = CausalText(clip, self.layout)
        with torch.no_grad():
            embedded = clip.text.token_embedding(torch.as_tensor(self.layout.ids))
        self.prefix, self.suffix = embedded[:, :1], embedded[:, 1 + case.context :]

    def tokens(self) -> tuple[Tensor, dict[int, Tensor]]:
        """The contexts [images, n, d] and the deep prompts of a step."""
        if self.case.method == "cocoop":
            up, up_bias, down, down_bias = self.learned[1:]
            shift = F.linear(F.relu(F.linear(self.images, up, up_bias)), down, down_bias)
            return self.learned[0] + shift[:, None], {}
        return self.learned[0][None], dict(enumerate(self.learned[1:], start=1))

    def plain_features(self) -> Tensor:
        """Text features as the published code computes them [images, C, D]: image after image, class after class."""
        tower, (contexts, deep) = self.clip.text, self.tokens()
        classes, n, features = self.case.classes, self.case.context, []
        for context in contexts:
            x = torch.cat([self.prefix, context.expand(classes, -1, -1), self.suffix], dim=1)
            x = x + tower.positional_embedding
            for index, block in enumerate(tower.transformer.resblocks):
                if index in deep:
                    x = torch.cat([x[:, :1], deep[index].expand(classes, -1, -1), x[:, 1 + n :]], dim=1)
                x = block(x, attn_mask=tower.attn_mask)
            x = tower.ln_final(x)[torch.arange(classes), torch.as_tensor(self.layout.eot)]
            features.append(x @ tower.text_projection)
        return torch.stack(features)

    def prompts(self) -> Prompts:
        """The prompts of a step, as a learner hands them over."""
        contexts, deep = self.tokens()
        deep = {index: tokens[None, None, None] for index, tokens in deep.items()}
        return Prompts(text=contexts[:, None, None], text_deep=deep)

    def fast_features(self) -> Tensor:
        """The same features by the fast pass."""
        return self.fast.encode(self.prompts())[:, 0]

    def step(self, encode: Callable[[], Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Forward, loss and backward: the features and the gradients of the learned tensors."""
        features = encode()
        tuned = F.normalize(features, dim=-1)
        logits = LOGIT_SCALE * (self.images[:, None] * tuned).sum(-1)
        loss = F.cross_entropy(logits, self.labels)
        if self.case.method == "kgcoop":
            loss = loss + KNOWLEDGE_WEIGHT * (1 - (tuned[0] * self.frozen).sum(-1)).mean()
        return features.detach(), list(torch.autograd.grad(loss, self.learned))


def build_clip() -> FrozenClip:
    """The model with LayerNorm weights and biases that differ, so that a folding error shows."""
    clip = open_clip_model(ARCHITECTURE, pretrained="random")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in clip.text.transformer.named_parameters():
            if "ln_" in name or name.endswith("bias"):
                parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return clip


def seconds(work: Callable[[], object], clock: Clock) -> float:
    """Seconds that one call takes by a clock."""
    start = clock()
    work()
    return clock() - start


def peak(clock: Clock, size: int = 2048) -> float:
    """FLOP/s of a square float32 matrix product: what the machine gives at this moment."""
    a = torch.ones(size, size)
    return 2 * size**3 / min(seconds(lambda: a @ a, clock) for _ in range(3))


def relative(got: list[Tensor], expected: list[Tensor]) -> float:
    """The largest relative difference of corresponding tensors, in the Euclidean norm."""
    return max(((a - b).norm() / b.norm()).item() for a, b in zip(got, expected, strict=True))


def proc_bytes(file: str, field: str) -> int:
    """Bytes of memory by a file of Linux's /proc."""
    fields = dict(line.split(":", 1) for line in Path(file).read_text().splitlines())
    return int(fields[field].split()[0]) * 1024


def held(case: Case, arm: str) -> int:
    """Bytes that the forward pass of an arm holds until its backward pass, in this process."""
    scene = Scene(build_clip(), case)
    encode = scene.plain_features if arm == "plain" else scene.fast_features
    scene.fast.rows(scene.prompts())  # constants are built once, not per step
    peak(time.perf_counter, 512)
    gc.collect()
    before = proc_bytes("/proc/self/status", "VmRSS")
    features = encode()
    return proc_bytes("/proc/self/status", "VmRSS") - before if features.requires_grad else 0


def held_elsewhere(case: Case, arm: str, threads: int) -> int:
    """``held`` in a fresh process."""
    command = [sys.executable, __file__, "--threads", str(threads), "--held", arm, json.dumps(asdict(case))]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(scene: Scene, repeats: int, plain_runs: bool, clock: Clock) -> Row:
    """Both arms in turn, a probe before each round; the first round warms up and is left out."""
    times: dict[str, list[float]] = {"peak": [], "plain": [], "fast": []}
    features, gradients = scene.step(scene.fast_features)
    row: Row = {}
    if plain_runs:
        plain_features, plain_gradients = scene.step(scene.plain_features)
        row["feature_error"] = relative([features], [plain_features])
        row["gradient_error"] = relative(gradients, plain_gradients)
    for _ in range(repeats):
        times["peak"].append(peak(clock))
        if plain_runs:
            times["plain"].append(seconds(lambda: scene.step(scene.plain_features), clock))
            scene.step(scene.fast_features)  # steps follow steps in training, not the plain arm
        times["fast"] += [seconds(lambda: scene.step(scene.fast_features), clock) for _ in range(3)]
    for name, values in times.items():
        if values:
            row[name], row[f"best_{name}"] = statistics.median(values), (max if name == "peak" else min)(values)
    return row


def run(case: Case, clip: FrozenClip, rates: dict[str, float], limits: argparse.Namespace) -> Row:
    """One row of the table; ``rates`` remembers the best FLOP/s of the plain arm, method by method."""
    scene = Scene(clip, case)
    prompts, plain = scene.prompts(), PlainText(clip, scene.layout)
    row: Row = {"case": case.label}
    row |= {"plain_rows": plain.rows(prompts), "fast_rows": scene.fast.rows(prompts)}
    row |= {"plain_flops": plain.flops(prompts), "fast_flops": scene.fast.flops(prompts)}
    room = min(limits.plain_gb * 1e9, proc_bytes("/proc/meminfo", "MemAvailable"))
    expected = row["plain_flops"] / rates.get(case.method, 4e10)
    runs = row["plain_rows"] * PLAIN_BYTES_A_ROW < room and expected < limits.plain_seconds
    row |= {"plain_runs": runs} | measure(scene, limits.repeats, runs, CLOCKS[limits.clock])
    del scene
    if runs:
        rates[case.method] = max(rates.get(case.method, 0.0), row["plain_flops"] / row["plain"])
    else:
        row |= {"plain": expected, "best_plain": expected}
    row |= {"ratio": row["plain"] / row["fast"], "best_ratio": row["best_plain"] / row["best_fast"]}
    row["share"] = row["fast_flops"] / row["fast"] / row["peak"]
    for arm in ("fast", "plain")[: limits.memory * (1 + runs)]:
        row[f"{arm}_held"] = held_elsewhere(case, arm, limits.threads)
    return row


COLUMNS = (  # title, key, format, unit
    ("plain s", "plain", "{:.3f}", 1),
    ("fast s", "fast", "{:.3f}", 1),
    ("ratio", "ratio", "{:.1f}", 1),
    ("of best", "best_ratio", "{:.1f}", 1),
    ("rows", "fast_rows", "{:.0f}", 1),
    ("of plain", "plain_rows", "{:.0f}", 1),
    ("GFLOP", "fast_flops", "{:.1f}", 1e9),
    ("of plain", "plain_flops", "{:.0f}", 1e9),
    ("of peak", "share", "{:.0%}", 1),
    ("held MB", "fast_held", "{:.0f}", 1e6),
    ("of plain", "plain_held", "{:.0f}", 1e6),
    ("feature diff", "feature_error", "{:.1e}", 1),
    ("gradient diff", "gradient_error", "{:.1e}", 1),
)


def show(rows: list[Row]) -> str:
    """The table in Markdown; what was computed rather than measured is marked with ~."""
    lines = [["case", *(title for title, *_ in COLUMNS)]]
    for row in rows:
        marked = () if row["plain_runs"] else ("plain", "ratio", "best_ratio")
        cells = (
            ("~" * (k in marked) + form.format(row[k] / unit)) if k in row else "-" for _, k, form, unit in COLUMNS
        )
        lines.append([row["case"], *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(map(str.rjust, line, widths)) + " |" for line in lines)


def main() -> None:
    """Run the cases and print the table, row by row and at the end."""
    methods = ("coop", "kgcoop", "cocoop", "maple")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few small cases, two rounds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: processor time, for one thread")
    parser.add_argument("--cases", default=",".join(methods), help="methods, comma-separated")
    parser.add_argument("--repeats", type=int, help="rounds of both arms (2 with --quick, else 4)")
    parser.add_argument("--plain-gb", type=float, default=16.0, help="the most memory the plain arm may take")
    parser.add_argument("--plain-seconds", type=float, default=120.0, help="the longest one plain step may take")
    parser.add_argument("--no-memory", dest="memory", action="store_false", help="leave out held memory")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--held", nargs=2, metavar=("ARM", "CASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.held:
        print(held(Case(**json.loads(options.held[1])), options.held[0]))
        return
    options.repeats = options.repeats or (2 if options.quick else 4)
    clip, rates, rows = build_clip(), {}, []
    for case in cases(options.cases.split(","), options.quick):
        rows.append(run(case, clip, rates, options))
        print(show(rows).splitlines()[-1], flush=True)
    setting = f"{ARCHITECTURE}, float32, {options.threads} threads, {options.clock} clock, torch {torch.__version__}"
    print(f"\n{setting}, medians\n\n{show(rows)}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
