"""Make a run of a checkpoint that the released code of a method saved.

Read are the files model.pth.tar-EPOCH and model-best.pth.tar of CoOp, CoCoOp, KgCoOp, ProGrad, ProDA, MaPLe, IVLP,
VPT, PromptSRC, TaskRes, CLIP-Adapter and TCP, as trained by their released code; CKPT is the file or the folder of its
run. Data set, protocol, shots, seed, model and method are read from the names of its folders where these tell;
KEY=VALUE goes before. Nothing in the file is run: it may hold tensors, numbers, texts, lists and dicts, optimisers and
schedulers are left out, and anything else is refused.

Where the images of the data set are there, the run is predicted, calibrated and measured as one that was trained here;
else it holds the learned tensors and the class names, for 'promptcal predict'.

Examples:
  promptcal import output/base2new/train_base/dtd/shots_16/CoCoOp/vit_b16_c4_ep10_batch1_ctxv1/seed1 data.root=/data
  promptcal import model.pth.tar-5 --model vit_b16 dataset=eurosat data.root=/data seed=2
  promptcal import model.pth.tar-50 --method coop --model rn50 --classes "red apple,green pear" learner.position=middle
"""

import argparse

HELP = "make a run of a checkpoint of a method's released code"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``promptcal import``."""
    parser.add_argument("checkpoint", metavar="CKPT", help="a checkpoint, or the folder of its run")
    parser.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="choices and keys of the configuration, as 'promptcal run'"
    )
    parser.add_argument("--method", metavar="NAME", help="the recipe it was trained by, where the file does not tell")
    parser.add_argument("--model", metavar="NAME", help="the CLIP it was trained on, where nothing tells")
    parser.add_argument("--classes", metavar="A,B,…", help="the class names, where the data set is not at hand")
    parser.add_argument("--again", action="store_true", help="repeat an import that is done already")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")


def run(arguments: argparse.Namespace) -> int:
    """Import and say where the run is."""
    from pathlib import Path

    from promptcal.console import complain, say
    from promptcal.imports.importing import import_checkpoint

    chosen = {"method": arguments.method, "model": arguments.model}
    overrides = [*arguments.overrides, *(f"{key}={value}" for key, value in chosen.items() if value)]
    folder = import_checkpoint(
        Path(arguments.checkpoint),
        overrides,
        classes=[name for name in (arguments.classes or "").split(",") if name.strip()],
        again=arguments.again,
        quiet=arguments.quiet,
        say=complain,
    )
    say(str(folder.path))
    return 0
