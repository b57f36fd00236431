"""Train the embedded CLIP from scratch on procedurally drawn pictures, and write its weights and model card.

Run it from the root of the repository. Nothing is downloaded: pictures are drawn from a seed, and the tokenizer comes
with open_clip. The weights are written after every epoch, so that an interrupted run leaves a usable file; `--resume`
goes on from the last epoch.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from promptcal.data.drawing import captions as words
from promptcal.data.drawing.corpus import draw_corpus
from promptcal.models.clip import OPENAI_MEAN, OPENAI_STD
from promptcal.models.embedded import (
    MINI_CLIP_CONFIG,
    save_embedded,
    untrained_rows,
)
from scripts.measure_mini_clip import measure, summary, write_card
from scripts.mini_clip_towers import encode_captions, encode_pictures

ROW_SEED, ROW_STD = 0, 0.02
CHUNK = 2000
NEAR_MISSES = 48
HEADS = {
    "shape": (words.SHAPE, 12),
    "colour": (words.COLOUR, 12),
    "pattern": (words.PATTERN, 4),
    "character": (words.CHARACTER, 36),
}


@dataclass(frozen=True)
class Tokens:
    """The captions' tokens renumbered in order, so that the trained embedding table has no idle rows."""

    tokenizer: SimpleTokenizer
    ids: NDArray[np.int64]
    seen: dict[str, list[int]] = field(default_factory=dict)

    @classmethod
    def collect(cls) -> "Tokens":
        """The tokens of every word that a caption can hold."""
        tokenizer = SimpleTokenizer(context_length=32)
        found = {0, tokenizer.sot_token_id, tokenizer.eot_token_id, *tokenizer.encode(words.all_words())}
        return cls(tokenizer, np.array(sorted(found), dtype=np.int64))

    def __call__(self, texts: list[str]) -> Tensor:
        """Renumbered tokens of shape (texts, longest); the end token keeps the highest number."""
        for text in texts:
            if text not in self.seen:
                ids = self.tokenizer.encode(text)[: self.tokenizer.context_length - 2]
                content = [self.tokenizer.sot_token_id, *ids, self.tokenizer.eot_token_id]
                self.seen[text] = np.searchsorted(self.ids, content).tolist()
        rows = [self.seen[text] for text in texts]
        longest = max(len(row) for row in rows)
        return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


def load_corpus(folder: Path, count: int, seed: int, processes: int) -> tuple[NDArray[np.uint8], words.Facts]:
    """The corpus as a memory map, drawn by `processes` processes unless `folder` holds it already."""
    picture_path, facts_path = folder / f"pictures-{seed}-{count}.npy", folder / f"facts-{seed}-{count}.npy"
    if not facts_path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pictures = np.lib.format.open_memmap(picture_path, mode="w+", dtype=np.uint8, shape=(count, 32, 32, 3))
        facts = np.empty((count, len(words.FACTS)), dtype=np.int16)
        starts = range(0, count, CHUNK)
        sizes = [min(CHUNK, count - start) for start in starts]
        with ProcessPoolExecutor(processes) as pool:
            parts = pool.map(draw_corpus, sizes, [seed] * len(sizes), starts)
            for start, size, part in zip(tqdm(starts, desc="drawing"), sizes, parts, strict=True):
                pictures[start : start + size], facts[start : start + size] = part
        pictures.flush()
        np.save(facts_path, facts)
    return np.load(picture_path, mmap_mode="r"), np.load(facts_path)


def contrast(logits: Tensor, own: Tensor, true: Tensor) -> Tensor:
    """InfoNCE between pictures and distinct captions.

    Args:
        logits: (pictures, captions).
        own: (pictures,) the column of each picture's own caption.
        true: (pictures, captions) which captions are true of which pictures; a true caption that is not the picture's
            own is no negative, and all pictures of which a caption is true are its positives.
    """
    rows = torch.arange(len(own))
    others = true.clone()
    others[rows, own] = False
    to_text = functional.cross_entropy(logits.masked_fill(others, -torch.inf), own)
    captioned = true.any(dim=0)
    share = true[:, captioned].float()
    to_image = -(functional.log_softmax(logits[:, captioned], dim=0) * share).sum(dim=0) / share.sum(dim=0)
    return (to_text + to_image.mean()) / 2


def head_loss(heads: nn.ModuleDict, features: Tensor, facts: Tensor) -> Tensor:
    """The mean cross-entropy of the auxiliary heads over the pictures to which each applies."""
    losses = []
    for name, head in heads.items():
        target = facts[:, HEADS[name][0]].long()
        kept = target != words.UNKNOWN
        losses.append(functional.cross_entropy(head(features[kept]), target[kept]))
    return torch.stack(losses).mean()


def caption_batch(facts: words.Facts, rng: np.random.Generator) -> tuple[list[str], words.Facts, NDArray[np.int64]]:
    """The distinct captions of a batch, near misses among them, their facts, and each picture's own column."""
    written = [words.write_caption(row, rng) for row in facts]
    written += [words.write_caption(words.near_miss(row, rng), rng) for row in facts[:NEAR_MISSES]]
    columns: dict[str, int] = {}
    own = [columns.setdefault(text, len(columns)) for text, _ in written][: len(facts)]
    stated = dict(written)
    return list(columns), np.stack([stated[text] for text in columns]), np.array(own)


def parameter_groups(modules: list[nn.Module], decay: float) -> list[dict[str, Any]]:
    """Matrices with weight decay, everything else without."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


def batches(count: int, size: int, seed: int, epoch: int) -> Iterator[NDArray[np.int64]]:
    """Random batches of one epoch; the last incomplete batch is left out."""
    order = np.random.default_rng([seed, epoch]).permutation(count)
    for start in range(0, count - size + 1, size):
        yield order[start : start + size]


def full_model(model: CLIP, tokens: Tokens) -> CLIP:
    """The trained model with the whole vocabulary: untrained rows where no caption had the token."""
    state = model.state_dict()
    text = MINI_CLIP_CONFIG["text_cfg"]
    table = torch.from_numpy(untrained_rows(text["vocab_size"], text["width"], ROW_SEED, ROW_STD))
    table[torch.from_numpy(tokens.ids)] = state["token_embedding.weight"]
    full = CLIP(**MINI_CLIP_CONFIG)
    full.load_state_dict({**state, "token_embedding.weight": table})
    return full.eval()


def train(arguments: argparse.Namespace) -> None:
    """Draw the corpus, train, and write weights after every epoch and the card at the end."""
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    tokens = Tokens.collect()
    config = {**MINI_CLIP_CONFIG, "text_cfg": {**MINI_CLIP_CONFIG["text_cfg"], "vocab_size": len(tokens.ids)}}
    model = CLIP(**config).train()
    heads = nn.ModuleDict({name: nn.Linear(config["embed_dim"], count) for name, (_, count) in HEADS.items()})
    optimiser = torch.optim.AdamW(parameter_groups([model, heads], arguments.decay), lr=0.0, betas=(0.9, 0.98))
    pictures, facts = load_corpus(arguments.work, arguments.images, arguments.seed, arguments.processes)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) * 255 for values in (OPENAI_MEAN, OPENAI_STD))
    steps = arguments.images // arguments.batch
    total, warmup = steps * arguments.epochs, min(300, steps // 2)
    first_epoch, seconds = 0, 0.0
    checkpoint = arguments.work / "checkpoint.pt"
    if arguments.resume and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(saved["model"])
        heads.load_state_dict(saved["heads"])
        optimiser.load_state_dict(saved["optimiser"])
        first_epoch, seconds = saved["epoch"], saved["seconds"]

    for epoch in range(first_epoch, arguments.epochs):
        began = time.monotonic()
        rng = np.random.default_rng([arguments.seed, epoch, 1])
        progress = tqdm(
            batches(len(facts), arguments.batch, arguments.seed, epoch),
            total=steps,
            desc=f"epoch {epoch + 1}",
            mininterval=20,
        )
        for index, batch in enumerate(progress):
            step = epoch * steps + index
            rate = min(1.0, (step + 1) / warmup) * 0.5 * (1 + math.cos(math.pi * step / total))
            for group in optimiser.param_groups:
                group["lr"] = arguments.rate * rate
            texts, stated, own = caption_batch(facts[batch], rng)
            true = torch.from_numpy(words.holds(facts[batch], stated))
            images = (torch.from_numpy(pictures[batch]).permute(0, 3, 1, 2).float() - mean) / std
            with torch.autocast("cpu", torch.bfloat16, enabled=not arguments.float32):
                features = encode_pictures(model, images)
            features = features.float()
            text_features = encode_captions(model, tokens(texts))
            logits = model.logit_scale.exp() * functional.normalize(features, dim=-1) @ text_features.T
            loss = contrast(logits, torch.from_numpy(own), true)
            helped = head_loss(heads, features, torch.from_numpy(facts[batch]))
            optimiser.zero_grad(set_to_none=True)
            (loss + arguments.head_weight * helped).backward()
            nn.utils.clip_grad_norm_([*model.parameters(), *heads.parameters()], 1.0)
            optimiser.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0.0, math.log(100.0))
            if index % 20 == 0:
                scale = float(model.logit_scale.detach().exp())
                progress.set_postfix(loss=f"{loss.item():.3f}", heads=f"{helped.item():.3f}", scale=f"{scale:.1f}")
        seconds += time.monotonic() - began
        state = {"model": model.state_dict(), "heads": heads.state_dict(), "optimiser": optimiser.state_dict()}
        partial = checkpoint.with_suffix(".partial")
        torch.save({**state, "epoch": epoch + 1, "seconds": seconds}, partial)
        partial.replace(checkpoint)
        meta = {
            "config": MINI_CLIP_CONFIG,
            "trained_rows": tokens.ids.tolist(),
            "row_seed": ROW_SEED,
            "row_std": ROW_STD,
            "data": f"{arguments.images} procedurally drawn 32-pixel pictures (seed {arguments.seed}) with captions",
            "training": f"{epoch + 1} of {arguments.epochs} epochs, batch {arguments.batch}, rate {arguments.rate}",
        }
        save_embedded(full_model(model, tokens), arguments.out, meta)
        figures = measure(arguments.out, quick=True)
        tqdm.write(f"epoch {epoch + 1}, {seconds / 60:.1f} min: {summary(figures)}")
    write_card(arguments.out, measure(arguments.out), seconds / 60)


def main() -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the safetensors file to write; the card goes beside it"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("mini_clip_work"), help="folder for drawn pictures, checkpoint"
    )
    parser.add_argument("--images", type=int, default=160_000, help="number of pictures to draw")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the pictures")
    parser.add_argument("--batch", type=int, default=128, help="pictures per step")
    parser.add_argument(
        "--rate", type=float, default=1.5e-3, help="highest learning rate; cosine decay after a warm-up"
    )
    parser.add_argument("--decay", type=float, default=0.05, help="weight decay of the matrices")
    parser.add_argument("--head-weight", type=float, default=0.5, help="weight of the auxiliary heads' loss")
    parser.add_argument("--seed", type=int, default=0, help="seed of pictures, captions, order and initial weights")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument("--processes", type=int, default=2, help="processes that draw")
    parser.add_argument("--float32", action="store_true", help="train in float32 throughout, not bfloat16 autocast")
    parser.add_argument("--resume", action="store_true", help="go on from the last finished epoch found in --work")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
