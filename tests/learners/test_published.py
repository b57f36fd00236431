"""Every learner equals a plain re-computation from the equations of its paper: features, losses and gradients."""

import copy
import math

import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from promptcal.learners.clip_adapter import ClipAdapter
from promptcal.learners.cocoop import CoCoOp
from promptcal.learners.coop import CoOp
from promptcal.learners.deep_language import DeepLanguage
from promptcal.learners.ivlp import IVLP
from promptcal.learners.maple import MaPLe
from promptcal.learners.proda import ProDA
from promptcal.learners.taskres import TaskRes
from promptcal.learners.tcp import TCP
from promptcal.learners.vpt import VPT
from promptcal.learners.zero_shot_ensemble import SELECT, ZeroShotEnsemble
from promptcal.losses.distillation import Distillation
from promptcal.losses.knowledge import Knowledge
from promptcal.losses.proda_orthogonality import ProdaOrthogonality
from promptcal.losses.proda_upper_bound import ProdaUpperBound
from promptcal.losses.promptsrc_image import PromptSrcImage
from promptcal.losses.promptsrc_logits import PromptSrcLogits
from promptcal.losses.promptsrc_text import PromptSrcText
from promptcal.models.classifier import Classifier
from promptcal.models.clip import FrozenClip
from promptcal.models.reference import Reference
from promptcal.training.gradient_rules import ProGrad
from promptcal.types import Batch, ClassNames

CLASSES = ClassNames(("cat", "big red dog", "AC/DC", "ship"), ("a photo of a {}, a type of thing.",))
LABELS = torch.tensor([0, 3, 1])


@pytest.fixture(params=["float32 fast", "float32 plain", "float64 fast", "float64 plain"])
def setting(request, tiny_clip):
    """A tiny CLIP, the kind of text pass, and the tolerance of its precision."""
    dtype, text_pass = request.param.split()
    if dtype == "float32":
        return tiny_clip, text_pass, 1e-5
    clip = FrozenClip(copy.deepcopy(tiny_clip.model).double(), tiny_clip.tokenizer, tiny_clip.transform, "double")
    return clip, text_pass, 1e-10


def data(clip):
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0), dtype=clip.dtype)
    with torch.no_grad():
        return Batch(LABELS, pixels=pixels, features=clip.encode_image(pixels))


def moved(learner, clip):
    """The learner in the model's precision and evaluation, away from its start."""
    learner = learner.to(clip.dtype).eval()
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator(), dtype=clip.dtype)
    return learner


def generator():
    return torch.Generator().manual_seed(5)


def official_text(clip, texts, context, deep=None):
    """The text tower as the papers run it: 77 tokens of every text, the places of "X" filled, read at the end token."""
    model = clip.model
    ids = clip.tokenizer(texts)
    slots = ids == clip.tokenizer.encode("X")[0]
    x = model.token_embedding(ids)

    def fill(x, tokens):
        return x.masked_scatter(slots[..., None], tokens.to(x.dtype).expand(len(texts), -1, -1).contiguous())

    x = fill(x, context) + model.positional_embedding
    for index, block in enumerate(model.transformer.resblocks):
        if deep and index in deep:
            x = fill(x, deep[index])
        x = block(x, attn_mask=model.attn_mask)
    return normalize(model.ln_final(x)[torch.arange(len(texts)), ids.argmax(dim=-1)] @ model.text_projection, dim=-1)


def official_image(clip, pixels, shallow, deep):
    """The image tower as the papers run it: CLS, patches, tokens; deep tokens in the places of the tokens."""
    visual = clip.visual
    x = visual.conv1(pixels).flatten(2).transpose(1, 2)
    x = torch.cat([visual.class_embedding.expand(len(x), 1, -1), x], dim=1) + visual.positional_embedding
    own = x.shape[1]
    x = visual.ln_pre(torch.cat([x, shallow.expand(len(x), -1, -1)], dim=1))
    for index, block in enumerate(visual.transformer.resblocks):
        if index in deep:
            x = torch.cat([x[:, :own], deep[index].expand(len(x), -1, -1)], dim=1)
        x = block(x)
    return normalize(visual.ln_post(x)[:, 0] @ visual.proj, dim=-1)


def frozen_text(clip, template):
    """Zero-shot features before normalisation."""
    with torch.no_grad():
        return clip.model.encode_text(clip.tokenizer([template.format(name) for name in CLASSES.names]))


def named(template):
    return [template.format(name) for name in CLASSES.names]


def compare(learner, ours, theirs, tolerance):
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=tolerance, atol=20 * tolerance)
    weights = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    parameters = list(learner.parameters())
    first = torch.autograd.grad((ours.double() * weights).sum(), parameters, retain_graph=True)
    second = torch.autograd.grad((theirs.double() * weights).sum(), parameters)
    for mine, plain in zip(first, second, strict=True):
        scale = plain.abs().max()
        assert scale > 0
        assert ((mine - plain).abs().max() / scale) < 20 * tolerance


def bind(clip, learner, text_pass, classes=CLASSES, reference=None):
    return Classifier(clip, learner, text_pass, reference=reference or Reference()).bind(classes)


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "text"), [("end", "X X X X {}."), ("middle", "X X {} X X."), ("front", "{} X X X X.")]
)
def test_coop(setting, position, text):
    clip, text_pass, tolerance = setting
    learner = moved(CoOp(clip, n_context=4, generator=generator(), position=position), clip)
    batch = data(clip)
    theirs = clip.logit_scale * normalize(batch.features, dim=-1) @ official_text(clip, named(text), learner.context).T
    compare(learner, bind(clip, learner, text_pass)(batch).logits, theirs, tolerance)


def test_class_specific_coop(setting):
    clip, text_pass, tolerance = setting
    learner = moved(CoOp(clip, CLASSES, generator(), n_context=4, class_specific=True), clip)
    batch = data(clip)
    text = official_text(clip, named("X X X X {}."), learner.context)
    theirs = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    compare(learner, bind(clip, learner, text_pass)(batch).logits, theirs, tolerance)


def test_cocoop(setting):
    clip, text_pass, tolerance = setting
    learner = moved(CoCoOp(clip, generator=generator()), clip)
    batch = data(clip)
    rows = []
    for feature in normalize(batch.features, dim=-1):  # one text pass an image, as published
        hidden = torch.relu(learner.meta_net["linear1"](feature))
        context = learner.context + learner.meta_net["linear2"](hidden)
        rows.append(clip.logit_scale * feature @ official_text(clip, named("X X X X {}."), context).T)
    compare(learner, bind(clip, learner, text_pass)(batch).logits, torch.stack(rows), tolerance)


def test_deep_language(setting):
    clip, text_pass, tolerance = setting
    learner = moved(DeepLanguage(clip, generator=generator(), n_context=3), clip)
    batch = data(clip)
    text = official_text(clip, named("X X X a {}."), learner.context, deep={1: learner.deep_text[0]})
    theirs = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    compare(learner, bind(clip, learner, text_pass)(batch).logits, theirs, tolerance)


def test_tcp(setting):
    clip, text_pass, tolerance = setting
    reference = Reference(("a picture of the {}.",))
    learner = moved(TCP(clip, generator(), block=1), clip)
    batch = data(clip)
    frozen = normalize(frozen_text(clip, "a picture of the {}."), dim=-1)
    hidden = learner.meta_net["linear1"](frozen)
    tokens = learner.meta_net["linear2"](hidden * torch.sigmoid(1.702 * hidden)).reshape(len(CLASSES), 4, -1)
    text = official_text(clip, named("X X X X {}, a type of thing."), learner.context, deep={1: tokens})
    outputs = bind(clip, learner, text_pass, reference=reference)(batch)
    logits = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    compare(learner, outputs.logits, logits, tolerance)
    total = cross_entropy(outputs.logits, LABELS) + 8.0 * Knowledge()(outputs, LABELS)
    plain = cross_entropy(logits, LABELS) + 8.0 * (1 - cosine_similarity(text, frozen, dim=-1).mean())
    torch.testing.assert_close(total, plain, rtol=10 * tolerance, atol=tolerance)


def test_taskres(setting):
    clip, text_pass, tolerance = setting
    classes = ClassNames(CLASSES.names, ("a photo of a {}.", "a drawing of the {}."))
    learner = moved(TaskRes(clip, classes, alpha=0.5), clip)
    batch = data(clip)
    frozen = torch.stack([frozen_text(clip, template) for template in classes.templates]).mean(dim=0)
    text = normalize(frozen + 0.5 * learner.residual, dim=-1)
    theirs = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    compare(learner, bind(clip, learner, text_pass, classes)(batch).logits, theirs, tolerance)


def test_kgcoop_is_coop_with_the_knowledge_term(setting):
    clip, text_pass, tolerance = setting
    learner = moved(CoOp(clip, init="a photo of a"), clip)
    batch = data(clip)
    outputs = bind(clip, learner, text_pass)(batch)
    ours = cross_entropy(outputs.logits, LABELS) + 8.0 * Knowledge()(outputs, LABELS)
    text = official_text(clip, named("X X X X {}."), learner.context)
    logits = clip.logit_scale * normalize(batch.features, dim=-1) @ text.T
    score = cosine_similarity(text, frozen_text(clip, CLASSES.templates[0]), dim=-1)
    compare(learner, ours, cross_entropy(logits, LABELS) + 8.0 * (1 - score.mean()), 10 * tolerance)


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 12])
def test_vpt(setting, depth):
    clip, text_pass, tolerance = setting
    learner = moved(VPT(clip, generator=generator(), depth=depth), clip)
    batch = data(clip)
    assert len(learner.deep_image) == min(depth, 2) - 1
    image = official_image(clip, batch.pixels, learner.image_context, dict(enumerate(learner.deep_image, start=1)))
    theirs = clip.logit_scale * image @ normalize(frozen_text(clip, "a photo of a {}."), dim=-1).T
    compare(learner, bind(clip, learner, text_pass)(batch).logits, theirs, tolerance)


def test_maple(setting):
    clip, text_pass, tolerance = setting
    learner = moved(MaPLe(clip, generator=generator(), depth=2), clip)
    batch = data(clip)
    text = official_text(clip, named("X X of a {}."), learner.context, deep={1: learner.deep_text[0]})
    shallow = learner.projection(learner.context)
    deep = learner.deep_projections[0](learner.deep_text[0])
    theirs = clip.logit_scale * official_image(clip, batch.pixels, shallow, {1: deep}) @ text.T
    compare(learner, bind(clip, learner, text_pass)(batch).logits, theirs, tolerance)


def test_maple_counts_its_parameters_as_published():
    """ViT-B/16, depth 9: ctx and 8 deep prompts of 2 x 512, nine maps from 512 to 768; read from the model."""

    class Shape(FrozenClip):
        def __init__(self):
            torch.nn.Module.__init__(self)

        text_width, image_width, text_layers, image_layers = 512, 768, 12, 12

        def require_image_tokens(self):
            pass

        def embed_words(self, words):
            return torch.zeros(len(words.split()), 512)

    learner = MaPLe(Shape())
    assert learner.n_parameters() == 9 * (512 * 768 + 768) + 18 * 512
    assert learner.tail == "of a {}."


def test_clip_adapter(setting):
    clip, text_pass, tolerance = setting
    learner = moved(ClipAdapter(clip, generator=generator()), clip)
    batch = data(clip)
    adapter = learner.adapter
    hidden = torch.relu(batch.features @ adapter["linear1"].weight.T)
    mixed = 0.2 * torch.relu(hidden @ adapter["linear2"].weight.T) + 0.8 * batch.features
    theirs = clip.logit_scale * normalize(mixed, dim=-1) @ normalize(frozen_text(clip, "a photo of a {}."), dim=-1).T
    compare(learner, bind(clip, learner, text_pass)(batch).logits, theirs, tolerance)


def ivlp(clip):
    return moved(IVLP(clip, generator=generator(), n_context=4, n_image=3), clip)


def official_ivlp(clip, learner, batch):
    text = official_text(clip, named("X X X X {}."), learner.context, deep={1: learner.deep_text[0]})
    return official_image(clip, batch.pixels, learner.image_context, {1: learner.deep_image[0]}), text


def test_ivlp(setting):
    clip, text_pass, tolerance = setting
    learner, batch = ivlp(clip), data(clip)
    image, text = official_ivlp(clip, learner, batch)
    compare(learner, bind(clip, learner, text_pass)(batch).logits, clip.logit_scale * image @ text.T, tolerance)


# --- methods with losses of their own --------------------------------------------------------------------------------


def test_promptsrc_is_ivlp_with_three_consistency_terms(setting):
    clip, text_pass, tolerance = setting
    learner, batch = ivlp(clip), data(clip)
    templates = ("a photo of a {}.", "a drawing of the {}.", "itap of a {}.")
    terms = (PromptSrcText(), PromptSrcImage(), PromptSrcLogits())
    needs = frozenset().union(*(term.needs for term in terms))
    outputs = bind(clip, learner, text_pass, reference=Reference(templates, "raw"))(batch, needs)
    ours = cross_entropy(outputs.logits, LABELS) + sum(term.weight * term(outputs, LABELS) for term in terms)

    image, text = official_ivlp(clip, learner, batch)
    frozen = normalize(torch.stack([frozen_text(clip, template) for template in templates]).mean(dim=0), dim=-1)
    still = normalize(batch.features, dim=-1)
    logits, zero_shot = clip.logit_scale * image @ text.T, clip.logit_scale * still @ frozen.T
    p0 = zero_shot.softmax(dim=1)
    divergence = (p0 * (p0.log() - logits.softmax(dim=1).log())).sum() / (3 * len(CLASSES))
    theirs = (
        cross_entropy(logits, LABELS)
        + 25 * (text - frozen).abs().sum() / text.numel()
        + 10 * (image - still).abs().sum() / image.numel()
        + divergence
    )
    compare(learner, ours, theirs, 10 * tolerance)


def test_prograd_takes_out_what_works_against_the_zero_shot_model(setting):
    clip, text_pass, tolerance = setting
    reference = Reference(("a type of thing, a photo of a {}.",))
    learner = moved(CoOp(clip, CLASSES, generator(), init_reference=True, min_context=16, reference=reference), clip)
    batch = data(clip)
    term = Distillation()
    outputs = bind(clip, learner, text_pass, reference=reference)(batch, term.needs)
    rule = ProGrad()
    rule(
        {"cross_entropy": cross_entropy(outputs.logits, LABELS), "distillation": term(outputs, LABELS)},
        list(learner.parameters()),
    )

    text = official_text(clip, named("X " * 16 + "{}."), learner.context)
    still = normalize(batch.features, dim=-1)
    frozen = normalize(frozen_text(clip, reference.templates[0]), dim=-1)
    logits = clip.logit_scale * still @ text.T
    teacher = (clip.logit_scale * still @ frozen.T).softmax(dim=1)
    guide = -(teacher * logits.log_softmax(dim=1)).sum() / 3
    (task,) = torch.autograd.grad(cross_entropy(logits, LABELS), [learner.context], retain_graph=True)
    (general,) = torch.autograd.grad(guide, [learner.context])
    along = (task * general).sum() / general.square().sum()
    theirs = task - along * general if along < 0 else task
    assert ((learner.context.grad - theirs).abs().max() / theirs.abs().max()) < 20 * tolerance


def test_prograd_starts_from_zeros_and_the_words_before_the_name(tiny_clip):
    reference = Reference(("a type of thing, a photo of a {}.",))
    start = CoOp(tiny_clip, CLASSES, init_reference=True, min_context=16, reference=reference).context
    words = tiny_clip.embed_words("a type of thing, a photo of a")
    assert start.shape[0] == 16
    assert torch.equal(start[-len(words) :], words)
    assert not start[: -len(words)].any()
    own = CoOp(tiny_clip, CLASSES, init_reference=True, reference=Reference()).context
    assert torch.equal(own, tiny_clip.embed_words("a photo of a"))


def proda(clip, **changes):
    return moved(ProDA(clip, generator(), n_prompts=8, n_context=4, **changes), clip)


def official_proda(clip, contexts, numbers):
    """Unit features of each prompt [P, C, D]; of 8 prompts 2 have the name in front, 2 in the middle, 4 at the end."""
    texts = {"front": "{} X X X X.", "middle": "X X {} X X.", "end": "X X X X {}."}
    places = ["front"] * 2 + ["middle"] * 2 + ["end"] * 4
    return torch.stack([official_text(clip, named(texts[places[p]]), contexts[p]) for p in numbers])


def test_proda_classifies_by_the_mean_of_all_prompts(setting):
    clip, text_pass, tolerance = setting
    learner, batch = proda(clip), data(clip)
    each = official_proda(clip, learner.context, range(8))
    theirs = clip.logit_scale * normalize(batch.features, dim=-1) @ each.mean(dim=0).T
    outputs = bind(clip, learner, text_pass)(batch)
    torch.testing.assert_close(outputs.prompt_features, each, rtol=tolerance, atol=tolerance)
    compare(learner, outputs.logits, theirs, tolerance)


def test_proda_bounds_the_expected_loss_of_the_prompts_of_a_step(setting):
    clip, text_pass, tolerance = setting
    learner, batch = proda(clip, prompts_per_step=4).train(), data(clip)
    terms = (ProdaUpperBound(), ProdaOrthogonality())
    outputs = bind(clip, learner, text_pass)(batch, frozenset().union(*(term.needs for term in terms)))
    ours = sum(term.weight * term(outputs, LABELS) for term in terms)

    order = torch.Generator().manual_seed(learner._seed)
    numbers = torch.randperm(8, generator=order)[:4].sort().values.tolist()
    each = official_proda(clip, learner.context, numbers)
    image = normalize(batch.features, dim=-1)
    logits = clip.logit_scale * image @ each.mean(dim=0).T
    centred = (each - each.mean(dim=0)).permute(2, 1, 0)
    covariance = centred @ centred.mT / (4 + 1)  # [D, C, C], as released
    weighted = torch.einsum("bd,dij->bij", image.square(), covariance)
    rows = []
    for i, label in enumerate(LABELS.tolist()):
        r = weighted[i]
        sigma = torch.stack([r[label, label] + r[c, c] - 2 * r[label, c] for c in range(len(CLASSES))])
        rows.append(logits[i] + 0.5 * clip.logit_scale**2 * sigma)
    nameless = torch.cat([official_text(clip, ["X X X X ."], context) for context in learner.context])
    cosine = [abs(nameless[p] @ nameless[q]) for p in range(8) for q in range(8) if p != q]
    theirs = cross_entropy(torch.stack(rows), LABELS) + 0.1 * torch.stack(cosine).mean()
    compare(learner, ours, theirs, 20 * tolerance)


def test_proda_takes_every_prompt_once_before_it_draws_again(tiny_clip):
    learner = ProDA(tiny_clip, generator(), n_prompts=8, n_context=2, prompts_per_step=2)
    seen = [learner._next().tolist() for _ in range(8)]
    assert sorted(torch.tensor(seen[:4]).flatten().tolist()) == list(range(8))
    assert sorted(torch.tensor(seen[4:]).flatten().tolist()) == list(range(8))
    assert seen[:4] != seen[4:]
    learner.begin_epoch(0)
    assert [learner._next().tolist() for _ in range(8)] == seen
    learner.begin_epoch(1)
    assert [learner._next().tolist() for _ in range(8)] != seen


def test_the_upper_bound_is_above_the_mean_loss_of_gaussian_prompts():
    """Jensen: E log Σ exp(x) ≤ log Σ exp(mean + var/2); with draws enough, the bound is above the average."""
    from promptcal.types import Outputs

    torch.manual_seed(0)
    mean, spread = torch.randn(5, 8, dtype=torch.float64) / 3, 0.05
    each = mean + spread * torch.randn(20_000, 5, 8, dtype=torch.float64)
    image = normalize(torch.randn(6, 8, dtype=torch.float64), dim=-1)
    labels, scale = torch.arange(6) % 5, 10.0
    logits = scale * image @ each.mean(dim=0).T
    outputs = Outputs(logits=logits, image_features=image, logit_scale=scale, learns_text=True, prompt_features=each)
    bound = ProdaUpperBound()(outputs, labels)
    expected = -(scale * torch.einsum("bd,pcd->pbc", image, each)).log_softmax(-1)[:, torch.arange(6), labels].mean()
    assert expected < bound < expected + 0.5
    assert math.isfinite(bound)


def test_a_zero_shot_ensemble_averages_unit_features_and_changes_no_list(tiny_clip):
    batch = data(tiny_clip)
    before = CLASSES.templates, SELECT
    for templates, learner in (
        ((*SELECT, *CLASSES.templates), ZeroShotEnsemble()),
        (SELECT, ZeroShotEnsemble(with_own=False)),
    ):
        for _ in range(2):
            outputs = bind(tiny_clip, learner, "fast")(batch)
            mean = torch.stack([normalize(frozen_text(tiny_clip, t), dim=-1) for t in templates]).mean(dim=0)
            theirs = tiny_clip.logit_scale * normalize(batch.features, dim=-1) @ normalize(mean, dim=-1).T
            torch.testing.assert_close(outputs.logits, theirs, rtol=1e-5, atol=1e-4)
    assert (CLASSES.templates, SELECT) == before
    assert len(SELECT) == 7
