"""Whole networks: every kind of timm model, what a head reads of it, and which tensors each way of training moves."""

import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn import functional

from promptcal.calibrators.temperature import best_temperature
from promptcal.errors import ConfigError, DataError
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.models.cifar_nets import ARCHITECTURES, cifar_model, densenet, resnet, wide_resnet
from promptcal.models.clip import ImageTransform
from promptcal.models.temperature import CalAttn
from promptcal.models.timm_models import timm_model
from promptcal.models.vision import Network, VisionModel
from promptcal.types import Batch, ClassNames

CLASSES = ClassNames(("a", "b", "c"))
HEAD = {"_target_": "promptcal.models.temperature.CalAttn", "hidden": 8}
VIT = {"patch_size": 16, "embed_dim": 16, "depth": 2, "num_heads": 2}
TINY = {
    "vit": ("vit_tiny_patch16_224", VIT, "cls"),
    "deit_distilled": ("deit_tiny_distilled_patch16_224", VIT, "cls"),
    "registers": ("vit_tiny_patch16_224", VIT | {"reg_tokens": 4}, "cls"),
    "average_pooled": ("vit_tiny_patch16_224", VIT | {"global_pool": "avg", "class_token": False}, "gap"),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"window_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2]},
        "gap",
    ),
    "convnext": ("convnext_atto", {"depths": [1, 1, 1, 1], "dims": [8, 8, 16, 16]}, "gap"),
    "hybrid": ("vit_tiny_r_s16_p8_224", {"embed_dim": 24, "depth": 1, "num_heads": 2}, "cls"),
    "resnet": ("resnet10t", {}, "gap"),
}
SIZES = {"hybrid": 256}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pixels(size=32, rows=4, seed=1):
    return torch.randn(rows, 3, size, size, generator=generator(seed))


def network(kind="vit", seed=0, **head):
    architecture, options, _ = TINY[kind]
    vision = timm_model(architecture, options=options, size=SIZES.get(kind, 32), name=kind)
    return Network(vision, CLASSES, generator(seed), head_node=HEAD | head if head else None)


def moved(net, seed=3):
    """The network with its head away from the start, where w₂ = 0 hides the path through z."""
    with torch.no_grad():
        for parameter in net.head.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator(seed)))
    return net


@pytest.mark.parametrize("kind", TINY)
def test_every_family_gives_its_own_logits_in_one_pass_and_an_exact_one(kind):
    net = network(kind, mode="joint").eval()
    shown = pixels(SIZES.get(kind, 32), rows=2)
    calls = []
    original = net.backbone.forward_features
    net.backbone.forward_features = lambda x, **rest: (calls.append(1), original(x, **rest))[1]
    with torch.no_grad():
        seen = net(shown)
        assert len(calls) == 1
        expected = net.backbone(shown)
    assert net.source == TINY[kind][2]
    assert torch.equal(seen.scaled.logits, expected)
    assert torch.equal(seen.scaled.temperature, torch.ones(2))
    assert seen.embedding.shape == (2, net.head.inner.in_features)


def test_sources_are_what_they_say():
    shown = pixels()
    for kind, prefix in (("vit", 1), ("deit_distilled", 2), ("registers", 5)):
        net = network(kind).eval()
        with torch.no_grad():
            raw = net.backbone.forward_features(shown)
            cls, mean = raw[:, 0], raw[:, prefix:].mean(dim=1)
            assert torch.equal(net._read(raw, "cls"), cls)
            torch.testing.assert_close(net._read(raw, "patch_mean"), mean)
            torch.testing.assert_close(net._read(raw, "concat"), torch.cat([cls, mean], dim=1))
            seen = net(shown)
            torch.testing.assert_close(seen.embedding, cls)
            final = net.backbone.norm
            torch.testing.assert_close(
                cls, functional.layer_norm(*_input_of_norm(net, shown), final.weight, final.bias, final.eps)[:, 0]
            )
            torch.testing.assert_close(seen.norms_before, _input_of_norm(net, shown)[0][:, 0].norm(dim=1))
    swin = network("swin").eval()
    with torch.no_grad():
        raw = swin.backbone.forward_features(shown)
        assert raw.ndim == 4
        assert raw.shape[-1] == swin.backbone.num_features
        torch.testing.assert_close(swin(shown).embedding, raw.mean(dim=(1, 2)))
    with pytest.raises(ConfigError, match=r"head\.source=cls"):
        network("swin", source="cls")


def _input_of_norm(net, shown):
    seen = []
    handle = net.backbone.norm.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    net.backbone(shown)
    handle.remove()
    return seen[0], (seen[0].shape[-1],)


def test_learned_pooling_starts_as_the_mean_and_learns():
    net = network("swin", source="attention")
    shown, labels = pixels(), torch.tensor([0, 1, 2, 0])
    with torch.no_grad():
        raw = net.backbone.forward_features(shown)
        torch.testing.assert_close(net._read(raw, "attention"), raw.mean(dim=(1, 2)))
    CrossEntropy()(moved(net).bind(CLASSES)(Batch(labels, pixels=shown)), labels).backward()
    assert net.pooling.weight.grad.abs().max() > 0
    with pytest.raises(ConfigError, match="attention"):
        network("swin", source="attention", mode="stop_z")


class Odd(nn.Module):
    """A model whose features are of another kind."""

    def __init__(self, features):
        super().__init__()
        self.forward_features = lambda x: features
        self.forward_head = lambda x, pre_logits=False: torch.zeros(1, 3)


@pytest.mark.parametrize(
    ("made", "word"),
    [
        (nn.Linear(1, 1), "forward_features"),
        (Odd([torch.zeros(1)]), "a list"),
        (Odd(torch.zeros(1, 5)), "2 dimensions"),
        (Odd(torch.zeros(1, 4, 5)), None),
    ],
)
def test_models_without_tokens_or_maps_are_refused(made, word):
    vision = VisionModel(lambda classes: made, ImageTransform(8), "odd", "random")
    if word is None:
        assert Network(vision, CLASSES).source == "gap"
        return
    with pytest.raises(ConfigError, match=word):
        Network(vision, CLASSES)


def test_a_head_changes_nothing_at_the_start():
    shown = Batch(torch.tensor([0, 1, 2, 0]), pixels=pixels())
    plain = network("vit").eval().bind(CLASSES)(shown)
    for mode in ("joint", "stop_z", "separate"):
        headed = network("vit", mode=mode).eval().bind(CLASSES)(shown)
        assert torch.equal(headed.calibrated_logits, plain.calibrated_logits)
        assert headed.temperature is not None
    assert plain.temperature is None
    assert plain.text_features is None
    torch.testing.assert_close(plain.image_features.norm(dim=1), torch.ones(4))


def test_the_ranking_of_the_classes_is_that_of_the_logits():
    outputs = moved(network("vit", mode="joint")).eval().bind(CLASSES)(Batch(torch.zeros(4).long(), pixels=pixels()))
    assert outputs.temperature.std() > 0
    assert torch.equal(outputs.calibrated_logits.argsort(dim=1), outputs.logits.argsort(dim=1))


def after_one_step(net):
    """The tensors after one step of plain gradient descent as the training loop takes it."""
    labels = torch.tensor([0, 1, 2, 0])
    net.train()
    outputs = net.bind(CLASSES)(Batch(labels, pixels=pixels()))
    loss = CrossEntropy()(outputs, labels)
    if outputs.apart is not None:
        loss = loss + CrossEntropy()(outputs.apart, labels)
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    loss.backward()
    optimiser.step()
    return {name: parameter.detach().clone() for name, parameter in net.named_parameters()}


def test_each_mode_moves_exactly_the_tensors_it_should():
    plain = after_one_step(network("vit"))
    start = dict(moved(network("vit", mode="joint")).named_parameters())
    moved_by = {mode: after_one_step(moved(network("vit", mode=mode))) for mode in ("joint", "stop_z", "separate")}
    backbone = [name for name in start if name.startswith("backbone.")]
    head = [name for name in start if name.startswith("head.")]
    for tensors in moved_by.values():
        assert all(not torch.equal(tensors[name], start[name]) for name in head)
    assert all(torch.equal(moved_by["separate"][name], plain[name]) for name in backbone)
    for name in ("backbone.blocks.0.mlp.fc1.weight", "backbone.norm.weight"):
        assert not torch.equal(moved_by["joint"][name], moved_by["stop_z"][name])
        assert not torch.equal(moved_by["stop_z"][name], plain[name])
    last = [name for name in backbone if name.startswith("backbone.head.")]
    assert all(torch.equal(moved_by["joint"][name], moved_by["stop_z"][name]) for name in last)

    net = moved(network("vit", mode="stop_z")).train()  # the backbone under stop_z: CE of the logits over a constant s
    labels = torch.tensor([0, 1, 2, 0])
    scaled = net(pixels()).scaled
    functional.cross_entropy(scaled.logits / scaled.temperature.detach()[:, None], labels).backward()
    for name in backbone:
        parameter = dict(net.named_parameters())[name]
        torch.testing.assert_close(moved_by["stop_z"][name], parameter - 0.5 * parameter.grad)


def test_a_linear_probe_learns_its_last_layer_and_head_alone():
    architecture, options, _ = TINY["vit"]
    vision = timm_model(architecture, options=options, size=32)
    net = Network(vision, CLASSES, generator(), head_node=HEAD, trains="classifier").train()
    learned = {name.split(".")[1] for name, parameter in net.named_parameters() if parameter.requires_grad}
    assert learned == {"head", "inner", "outer"}
    assert not net.backbone.training
    assert net.n_parameters() == 16 * 3 + 3 + 8 * 18 + 1


def test_a_network_serves_its_own_classes_and_needs_pixels():
    net = network("vit")
    with pytest.raises(ConfigError, match="protocol=train"):
        net.bind(ClassNames(("a", "b", "d")))
    with pytest.raises(DataError, match="pixels"):
        net.bind(CLASSES)(Batch(torch.tensor([0]), features=torch.zeros(1, 16)))


def test_the_seed_decides_the_network():
    first, second, other = network("vit"), network("vit"), network("vit", seed=1)
    torch.rand(3)
    state = first.state_dict()
    assert all(torch.equal(tensor, second.state_dict()[name]) for name, tensor in state.items())
    assert not torch.equal(state["backbone.head.weight"], other.state_dict()["backbone.head.weight"])


def test_weights_come_from_a_file_strictly(tmp_path):
    architecture, options, _ = TINY["vit"]
    with torch.random.fork_rng():
        torch.manual_seed(5)
        donor = timm.create_model(architecture, num_classes=7, img_size=32, **options)
    path = tmp_path / "weights.pt"
    torch.save(donor.state_dict(), path)
    vision = timm_model(architecture, weights=str(path), options=options, size=32)
    net = Network(vision, CLASSES, generator())
    assert torch.equal(net.backbone.blocks[1].mlp.fc1.weight, donor.blocks[1].mlp.fc1.weight)
    assert net.backbone.head.weight.shape == (3, 16)
    assert vision.weights_digest() != "random"
    broken = {name: tensor for name, tensor in donor.state_dict().items() if "blocks.1.mlp" not in name}
    torch.save(broken, path)
    with pytest.raises(ConfigError, match="do not fit"):
        Network(timm_model(architecture, weights=str(path), options=options, size=32), CLASSES)
    with pytest.raises(ConfigError, match="no weights file"):
        timm_model(architecture, weights=str(tmp_path / "absent.pt"))
    with pytest.raises(ConfigError, match=r"model\.download=true"):
        timm_model("vit_base_patch16_224", pretrained=True)
    with pytest.raises(ConfigError, match="vit_tiny_patch16_224"):
        timm_model("vit_tiny_patch16_244")


@pytest.mark.parametrize(
    ("architecture", "width"),
    [("deit_small_patch16_224", 384), ("vit_base_patch16_224", 768), ("swin_small_patch4_window7_224", 768)],
)
def test_the_head_is_less_than_a_thousandth_of_the_published_backbones(architecture, width):
    with torch.device("meta"):
        backbone = timm.create_model(architecture, num_classes=100)
    assert backbone.num_features == width
    whole = sum(parameter.numel() for parameter in backbone.parameters())
    shares = {h: sum(p.numel() for p in CalAttn(width, hidden=h).parameters()) / whole for h in (32, 128)}
    assert shares[32] < 0.001 < shares[128]


def test_the_cnns_have_the_sizes_of_the_literature():
    import torchvision

    with torch.device("meta"):
        sizes = {name: sum(p.numel() for p in make(10).parameters()) for name, make in ARCHITECTURES.items()}
        stem = 64 * 3 * (49 - 9)  # 7×7 in torchvision's, 3×3 here
        for name in ("resnet50", "densenet121"):
            theirs = getattr(torchvision.models, name)(num_classes=10)
            norm = 2 * 64 if name == "densenet121" else 0  # torchvision's stem of a DenseNet has a batch norm
            assert sizes[name] == sum(p.numel() for p in theirs.parameters()) - stem - norm
    assert round(sizes["wide_resnet26_10"] / 1e6, 1) == 36.5
    assert sizes["resnet110"] > sizes["resnet50"]


def test_the_cnns_run_and_a_head_reads_their_pooled_map():
    for made in (resnet((1, 1), 3, width=4), wide_resnet(8, 1, 3), densenet((2, 2), 4, 3)):
        vision = VisionModel(lambda classes, made=made: made, ImageTransform(16), "cnn", "random")
        net = Network(vision, CLASSES, head_node=HEAD).eval()
        with torch.no_grad():
            raw = net.backbone.forward_features(pixels(16))
            torch.testing.assert_close(net(pixels(16)).embedding, raw.mean(dim=(2, 3)))
        assert net.source == "gap"
    with pytest.raises(ConfigError, match="resnet50"):
        cifar_model("resnet51")


def fitted_head(features, logits, labels):
    """A head fitted on frozen features and logits, as ``separate`` trains it, from the one temperature that fits best;
    the fifth of the rows that it does not learn from says when to stop.
    """
    head = CalAttn(features.shape[1], generator(), hidden=32)
    scaling = best_temperature(logits.double().numpy(), labels.numpy()).temperature
    with torch.no_grad():
        head.outer.bias.fill_(float(np.log(np.expm1(scaling))))
    optimiser = torch.optim.AdamW(head.parameters(), lr=0.003, weight_decay=1.0)
    learns, held = slice(0, -400), slice(-400, None)
    best, state, since = float("inf"), {}, 0
    while since < 40:
        with torch.no_grad():
            value = float(functional.cross_entropy(logits[held] / head(features[held])[:, None], labels[held]))
        since += 1
        if value < best:
            best, state, since = value, {name: tensor.clone() for name, tensor in head.state_dict().items()}, 0
        optimiser.zero_grad()
        functional.cross_entropy(logits[learns] / head(features[learns])[:, None], labels[learns]).backward()
        optimiser.step()
    head.load_state_dict(state)
    return head


def heteroscedastic(amplitude, n=22_000, classes=300):
    """Labels drawn from softmax(u / s*(z)) of known logits u and a known temperature of z ∈ R¹⁶."""
    source = generator(12)
    z = torch.randn(n, 16, generator=source)
    direction = functional.normalize(torch.randn(16, generator=source), dim=0)
    s = 2 * torch.exp(amplitude * torch.tanh(z @ direction))
    u = 8 * torch.randn(n, classes, generator=source)
    labels = torch.multinomial(torch.softmax(u / s[:, None], dim=1), 1, generator=source).squeeze(1)
    return z, u, s, labels


@pytest.mark.parametrize("amplitude", [1.2, 0.0])
def test_known_truth_a_head_finds_the_temperature_that_made_the_labels(amplitude):
    z, u, s, labels = heteroscedastic(amplitude)
    head = fitted_head(z[:2000], u[:2000], labels[:2000])
    with torch.no_grad():
        found = head(z[2000:])
    scaling = torch.tensor(best_temperature(u[:2000].double().numpy(), labels[:2000].numpy()).temperature)
    divisors = {"oracle": s[2000:, None], "head": found[:, None], "scaling": scaling}
    nll = {name: float(functional.cross_entropy(u[2000:] / by, labels[2000:])) for name, by in divisors.items()}
    if amplitude:
        assert np.corrcoef(found.log(), s[2000:].log())[0, 1] >= 0.95
        assert nll["scaling"] - nll["head"] >= 0.9 * (nll["scaling"] - nll["oracle"]) > 0.1
    else:
        assert nll["head"] <= nll["scaling"] + 0.001
