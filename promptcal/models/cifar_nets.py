"""The CNNs of the calibration literature for 32-pixel images, as its released code builds them.

Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020, arXiv 2002.09437, train ResNet-50,
ResNet-110, Wide-ResNet-26-10 and DenseNet-121 on CIFAR; the papers that compare with them take the same four.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from promptcal.errors import ConfigError, unknown
from promptcal.models.clip import ImageTransform
from promptcal.models.vision import VisionModel

CIFAR_MEAN = (0.4914, 0.4822, 0.4465)
CIFAR_STD = (0.2023, 0.1994, 0.2010)


class CifarNet(nn.Module):
    """A CNN whose map [b, d, h, w] is averaged and classified; the interface of timm's models.

    Args:
        features: from pixels to the map.
        width: d.
        num_classes: of the last layer.
    """

    def __init__(self, features: nn.Module, width: int, num_classes: int) -> None:
        super().__init__()
        self.features = features
        self.fc = nn.Linear(width, num_classes)

    def forward_features(self, pixels: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d y x"]:
        """The last map, after its activation."""
        return self.features(pixels)  # type: ignore[no-any-return]

    def forward_head(self, features: Float[Tensor, "b d y x"], pre_logits: bool = False) -> Float[Tensor, "b k"]:
        """The logits, or the averaged map."""
        pooled = features.mean(dim=(2, 3))
        return pooled if pre_logits else self.fc(pooled)

    def get_classifier(self) -> nn.Linear:
        """The last layer."""
        return self.fc


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions with batch norm around a shortcut; four times ``planes`` channels out."""

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * planes
        self.body = nn.Sequential(
            *_conv(inputs, planes, 1),
            nn.ReLU(inplace=True),
            *_conv(planes, planes, 3, stride),
            nn.ReLU(inplace=True),
            *_conv(planes, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(*_conv(inputs, outputs, 1, stride))

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d y x"]:
        """The sum of body and shortcut, rectified."""
        return functional.relu(self.body(x) + self.shortcut(x))


class WideBlock(nn.Module):
    """The pre-activation block of wide residual networks: BN, ReLU, 3×3, BN, ReLU, 3×3, around a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(inplace=True))
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
        )
        self.shortcut = None if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d y x"]:
        """The body plus the shortcut; a convolved shortcut starts from the activated input."""
        active = self.first(x)
        return self.body(active) + (x if self.shortcut is None else self.shortcut(active))  # type: ignore[no-any-return]


class DenseLayer(nn.Module):
    """BN, ReLU, 1×1 to four growths, BN, ReLU, 3×3 to one growth, laid beside the input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False),
        )

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
        """Input and new features."""
        return torch.cat([self.body(x), x], dim=1)


def resnet(blocks: Sequence[int], num_classes: int, width: int = 64) -> CifarNet:
    """A bottleneck ResNet with a 3×3 stem and no max-pool.

    [3, 4, 6, 3] is ResNet-50; [3, 4, 26, 3] is what the literature's code calls ResNet-110, and not the classic
    ResNet-110 of 16, 32 and 64 channels.
    """
    layers: list[nn.Module] = [*_conv(3, width, 3), nn.ReLU(inplace=True)]
    inputs = width
    for stage, count in enumerate(blocks):
        planes = width * 2**stage
        for index in range(count):
            layers.append(Bottleneck(inputs, planes, 2 if stage and index == 0 else 1))
            inputs = 4 * planes
    return CifarNet(nn.Sequential(*layers), inputs, num_classes)


def wide_resnet(depth: int, widen: int, num_classes: int) -> CifarNet:
    """A wide ResNet of (depth − 2)/6 blocks a stage, as the literature's code counts.

    Convolutions of k×k start as N(0, 2/(k²·channels out)).

    Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016, arXiv 1605.07146, count (depth − 4)/6.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    inputs = 16
    for stage in range(3):
        outputs = 16 * widen * 2**stage
        for index in range((depth - 2) // 6):
            layers.append(WideBlock(inputs, outputs, 2 if stage and index == 0 else 1))
            inputs = outputs
    net = CifarNet(nn.Sequential(*layers, nn.BatchNorm2d(inputs), nn.ReLU(inplace=True)), inputs, num_classes)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, 0.0, (2 / (module.kernel_size[0] ** 2 * module.out_channels)) ** 0.5)
    nn.init.zeros_(net.fc.bias)
    return net


def densenet(blocks: Sequence[int], growth: int, num_classes: int, reduction: float = 0.5) -> CifarNet:
    """A DenseNet-BC with a 3×3 stem of 2·growth channels; [6, 12, 24, 16] and growth 32 is DenseNet-121.

    Huang et al., "Densely Connected Convolutional Networks", CVPR 2017, arXiv 1608.06993.
    """
    channels = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 1, 1, bias=False)]
    for stage, count in enumerate(blocks):
        if stage:
            outputs = int(channels * reduction)
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.Conv2d(channels, outputs, 1, bias=False)]
            layers.append(nn.AvgPool2d(2))
            channels = outputs
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return CifarNet(nn.Sequential(*layers), channels, num_classes)


ARCHITECTURES = {
    "resnet50": lambda classes: resnet((3, 4, 6, 3), classes),
    "resnet110": lambda classes: resnet((3, 4, 26, 3), classes),
    "wide_resnet26_10": lambda classes: wide_resnet(26, 10, classes),
    "densenet121": lambda classes: densenet((6, 12, 24, 16), 32, classes),
}


def cifar_model(architecture: str, name: str | None = None) -> VisionModel:
    """A CNN for 32-pixel images, from random numbers; images are normalised with CIFAR-10's means and deviations.

    Args:
        architecture: ``resnet50``, ``resnet110``, ``wide_resnet26_10`` or ``densenet121``.
        name: what to call it.

    Raises:
        ConfigError: an unknown architecture.
    """
    if architecture not in ARCHITECTURES:
        raise ConfigError(unknown("architecture", architecture, ARCHITECTURES))
    transform = ImageTransform(32, mean=CIFAR_MEAN, std=CIFAR_STD)
    return VisionModel(ARCHITECTURES[architecture], transform, name or architecture, "random")


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)
