"""Compare prediction files on the same samples: which model is better, and is it more than chance?

The first file is compared with every other one: accuracy, ECE, NLL and Brier score, each difference with a 95 %
interval and the p-value of a paired permutation test, corrected (Holm) for all the tests made.

Examples:
  promptcal compare before.npz after.npz
  promptcal compare zero_shot.safetensors coop.safetensors kgcoop.safetensors --out comparison.json
"""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from promptcal.metrics.comparison import Comparison

HELP = "paired tests between prediction files of the same samples"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal compare``."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="two or more: .npz, .csv or .safetensors")
    parser.add_argument("--logits", action="store_true", help="the tables hold logits, not probabilities")
    parser.add_argument("--replicates", type=int, default=2000, help="permutations and resamples (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="of the permutations and resamples (default: 0)")
    parser.add_argument("--out", metavar="FILE", help="write the rows there as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Read, compare and print."""
    from pathlib import Path

    from promptcal.console import say
    from promptcal.data.prediction_files import read_predictions
    from promptcal.errors import ConfigError
    from promptcal.metrics.comparison import compare
    from promptcal.storage import write_json

    if arguments.replicates < 1:
        raise ConfigError(f"--replicates {arguments.replicates} makes no sense; give at least 1.")
    if len(set(arguments.files)) < len(arguments.files):
        raise ConfigError("one file is given twice; a comparison needs different files.")
    predictions = {name: read_predictions(Path(name), logits=arguments.logits) for name in arguments.files}
    rows = compare(predictions, replicates=arguments.replicates, seed=arguments.seed)
    say(f"{rows[0].n} samples; difference = the other file minus {rows[0].first}")
    say()
    say(table(rows))
    if arguments.out is not None:
        write_json(Path(arguments.out), [row.row() for row in rows])
        say()
        say(f"wrote {arguments.out}")
    return 0


def table(rows: "list[Comparison]") -> str:
    """The comparisons as aligned text."""
    from promptcal.console import columns

    lines = [("metric", "file", "first", "other", "difference", "95 % interval", "p", "p (Holm)")]
    lines += [
        (
            row.metric,
            row.other,
            f"{row.first_value:.4f}",
            f"{row.other_value:.4f}",
            f"{row.difference:+.4f}",
            f"{row.low:+.4f} to {row.high:+.4f}",
            f"{row.p_value:.4f}",
            f"{row.p_holm:.4f}",
        )
        for row in rows
    ]
    return columns(lines)
