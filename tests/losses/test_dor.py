"""DOR: the pool of outlier words, the draw, and the value, on a tiny CLIP with random weights."""

import zipfile

import pytest
import torch
from torch.nn.functional import normalize

from promptcal.errors import ConfigError
from promptcal.learners.cocoop import CoCoOp
from promptcal.learners.coop import CoOp
from promptcal.losses import dor
from promptcal.losses import nouns as sources
from promptcal.losses.dor import DynamicOutlierRegularisation, forms
from promptcal.models.classifier import Classifier
from promptcal.models.text_plan import plan
from promptcal.types import Batch, ClassNames

CLASSES = ClassNames(("goldfish", "electric rays", "cliff"), ("a photo of a {}.", "a {}."))


WORDS = (*sources.nouns("imagenet")[:80], "cliff")


@pytest.fixture(scope="module", autouse=True)
def few_nouns():
    """Eighty class names of ImageNet and one more, as a thousand take long to encode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dor, "nouns", lambda source: WORDS if source == "imagenet" else sources.nouns(source))
        yield


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def classifier(tiny_clip):
    return Classifier(tiny_clip, CoOp(tiny_clip, CLASSES, generator(), n_context=3))


@pytest.fixture(scope="module")
def term(classifier):
    return DynamicOutlierRegularisation(classifier, CLASSES, generator(5), source="imagenet", pool=40, batch=6)


def some_outputs(classifier, seed=0):
    features = torch.randn(4, classifier.clip.embed_dim, generator=generator(seed))
    return classifier.bind(CLASSES)(Batch(torch.tensor([0, 1, 2, 0]), features=features))


def test_the_pool_holds_the_nouns_that_are_most_like_the_classes(classifier, term):
    words = [word for word in WORDS if word not in ("goldfish", "electric ray", "cliff")]
    assert len(words) == 78

    def frozen(names):
        each = [
            normalize(classifier.clip.encode_texts([template.format(name) for name in names]), dim=-1)
            for template in CLASSES.templates
        ]
        return normalize(torch.stack(each).mean(dim=0), dim=-1)

    features = frozen(words)
    scores = [(float((row @ frozen(CLASSES.names).T).mean()), word) for row, word in zip(features, words, strict=True)]
    expected = {word for _, word in sorted(scores)[-40:]}
    assert len(expected & set(term.words)) >= 39  # two scores may differ by a rounding
    index = words.index(term.words[7])
    torch.testing.assert_close(term.frozen[7], features[index], rtol=1e-5, atol=1e-6)


def test_the_value_and_gradient_are_those_of_the_plain_pass_over_the_drawn_words(classifier, term):
    outputs = some_outputs(classifier)
    chosen = term.draw(outputs)
    words = [term.words[index] for index in chosen.tolist()]
    prompts = classifier.learner(None)
    layout = plan(words, 3, classifier.clip.tokens, tail=prompts.tail)
    tuned = normalize(classifier.clip.encode_plan(layout, prompts)[0, 0], dim=-1)
    expected = 1 - (tuned * term.frozen[chosen]).sum(dim=-1).mean()
    value = term(outputs, torch.tensor([0, 1, 2, 0]))
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
    learned = list(classifier.learner.parameters())
    for ours, plain in zip(torch.autograd.grad(value, learned), torch.autograd.grad(expected, learned), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-7)
        assert ours.abs().sum() > 0


def test_frozen_features_are_computed_once(classifier, term, monkeypatch):
    outputs = some_outputs(classifier)
    monkeypatch.setattr(type(classifier.clip), "encode_texts", lambda *arguments, **more: pytest.fail("again"))
    term(outputs, torch.tensor([0, 1, 2, 0]))


def test_every_step_draws_anew_and_the_same_state_draws_the_same(classifier, term):
    first, second = some_outputs(classifier), some_outputs(classifier, seed=1)
    assert torch.equal(term.draw(first), term.draw(first))
    assert not torch.equal(term.draw(first), term.draw(second))
    assert len(set(term.draw(first).tolist())) == 6
    another = DynamicOutlierRegularisation(classifier, CLASSES, generator(6), source="imagenet", pool=40, batch=6)
    assert not torch.equal(another.draw(first), term.draw(first))


def test_prompts_that_depend_on_the_image(tiny_clip):
    learner = CoCoOp(tiny_clip, generator())
    classifier = Classifier(tiny_clip, learner)
    term = DynamicOutlierRegularisation(classifier, CLASSES, generator(), source="imagenet", pool=10, batch=3)
    outputs = some_outputs(classifier)
    value = term(outputs, torch.tensor([0, 1, 2, 0]))
    words = ClassNames(tuple(term.words[index] for index in term.draw(outputs).tolist()))
    text = classifier.bind(words).text_features(learner(outputs.zero_shot_image_features))
    assert text.shape[:2] == (4, 3)
    expected = 1 - (text * term.frozen[term.draw(outputs)]).sum(dim=-1).mean()
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)


def test_class_names_and_their_plurals_are_no_outliers():
    assert forms("Electric_Ray") & forms("electric rays")
    assert forms("cherry") & forms("cherries")
    assert forms("boxes") & forms("box")
    assert not forms("cat") & forms("cattle")


def test_what_cannot_be_is_refused(tiny_clip, classifier):
    tied = Classifier(tiny_clip, CoOp(tiny_clip, CLASSES, generator(), n_context=3, class_specific=True))
    with pytest.raises(ConfigError, match="its own classes alone"):
        DynamicOutlierRegularisation(tied, CLASSES, generator(), source="imagenet")
    with pytest.raises(ConfigError, match="Did you mean 'imagenet'"):
        DynamicOutlierRegularisation(classifier, CLASSES, generator(), source="imagenets")
    with pytest.raises(ConfigError, match="at least 1"):
        DynamicOutlierRegularisation(classifier, CLASSES, generator(), source="imagenet", batch=0)
    with pytest.raises(ConfigError, match="no outliers"):
        DynamicOutlierRegularisation(classifier, ClassNames(WORDS), generator(), source="imagenet")


INDEX = "  1 This is a licence with spaces.\nelectric_ray n 1 0\ncat n 8 4\ncat n 8 4\n'hood n 1 2\n"


def test_wordnets_nouns_are_read_where_they_lie(tmp_path, monkeypatch):
    for name in ("WNSEARCHDIR", "WNHOME", "NLTK_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sources, "SYSTEM", ())
    sources.nouns.cache_clear()
    assert sources.best_source() == "imagenet"
    with pytest.raises(ConfigError, match="no WordNet"):
        sources.nouns("wordnet")
    corpora = tmp_path / "nltk" / "corpora"
    corpora.mkdir(parents=True)
    with zipfile.ZipFile(corpora / "wordnet.zip", "w") as archive:
        archive.writestr("wordnet/index.noun", INDEX)
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    assert sources.best_source() == "wordnet"
    assert sources.nouns("wordnet") == ("electric ray", "cat", "'hood")
    (tmp_path / "index.noun").write_text(INDEX + "dog n 7 4\n", encoding="utf-8")
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    sources.nouns.cache_clear()
    assert sources.nouns("wordnet")[-1] == "dog"
    sources.nouns.cache_clear()
