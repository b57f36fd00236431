"""The names people read, for the names that configurations use; a name that is not here is shown as it is."""

METHODS = {
    "zero_shot": "zero-shot CLIP",
    "zero_shot_ensemble": "zero-shot CLIP (8 templates)",
    "coop": "CoOp",
    "coop_ep50": "CoOp (TCPT recipe)",
    "coop_ep50_middle": "CoOp (TCPT recipe, name in the middle)",
    "coop_ep100": "CoOp (100 epochs)",
    "coop_ep200": "CoOp (200 epochs, 16 tokens)",
    "coop_class_specific": "CoOp (class-specific)",
    "cocoop": "CoCoOp",
    "kgcoop": "KgCoOp",
    "kgcoop_dac": "KgCoOp (DAC recipe)",
    "prograd": "ProGrad",
    "prograd_ep50": "ProGrad (50 epochs)",
    "prograd_ep200": "ProGrad (200 epochs)",
    "proda": "ProDA",
    "maple": "MaPLe",
    "maple_cross_dataset": "MaPLe (cross-dataset recipe)",
    "maple_dac": "MaPLe (DAC recipe)",
    "vpt": "VPT",
    "vpt_shallow": "VPT (shallow)",
    "deep_language": "deep language prompting",
    "ivlp": "IVLP",
    "promptsrc": "PromptSRC",
    "promptsrc_cross_dataset": "PromptSRC (cross-dataset recipe)",
    "promptsrc_few_shot": "PromptSRC (few-shot recipe)",
    "promptsrc_few_shot_late": "PromptSRC (few-shot recipe, late average)",
    "tcp": "TCP",
    "taskres": "TaskRes",
    "taskres_ep100": "TaskRes (100 epochs)",
    "clip_adapter": "CLIP-Adapter",
    "classifier": "image classifier",
    "vit_calibrator": "ViT-Calibrator",
    "vit_calibrator_token": "ViT-Calibrator (stage 1)",
    "vit_calibrator_dimension": "ViT-Calibrator (stage 2)",
}
PLUGINS = {
    "mbls": "MbLS",
    "penalty": "zero-shot penalty",
    "zs_norm": "ZS-Norm",
    "dca": "DCA",
    "mdca": "MDCA",
    "mmce": "MMCE",
    "mmce_weighted": "weighted MMCE",
    "dor": "DOR",
    "flsd53": "FLSD-53",
    "brier": "Brier",
    "ce_brier": "CE and Brier",
    "fcl": "FCL",
    "entropy": "confidence penalty",
    "text_alignment": "text alignment",
    "moments_mean": "mean moment",
    "moments_covariance": "covariance moment",
    "text_orthogonality_frobenius": "text orthogonality (Frobenius)",
}
PROTOCOLS = {
    "base_to_novel": "Base-to-novel calibration",
    "base_to_novel_all": "Base-to-novel calibration over all classes",
    "few_shot": "Few-shot calibration",
    "cross_dataset": "Cross-dataset calibration",
    "domain_shift": "Calibration under domain shift",
    "train": "Calibration of image classifiers",
}
"""What a report of one protocol is called."""

CALIBRATORS = {
    "temperature": "TS",
    "temperature_ece": "TS (by ECE)",
    "fixed_temperature": "fixed temperature",
    "cots": "CoTS",
    "cots_val": "CoTS (validation)",
    "ensemble_temperature": "ensemble TS",
    "parametrised_temperature": "parametrised TS",
    "logit_mlp": "logit MLP",
    "loglinear": "log-linear",
    "calattn": "CalAttn (post hoc)",
    "vector": "vector scaling",
    "matrix": "matrix scaling",
    "dirichlet": "Dirichlet",
    "histogram": "histogram binning",
    "isotonic": "isotonic regression",
    "multi_isotonic": "multi-class isotonic regression",
    "spline": "spline",
    "bin_mean_shift": "bin-mean-shift",
    "density_ratio": "density ratio",
    "dac": "DAC",
    "sals": "SaLS",
    "sats": "SATS",
    "chain": "DAC + TS",
}
METRICS = {
    "accuracy": "accuracy",
    "ece": "ECE",
    "ece_noise_floor": "ECE noise floor",
    "smooth_ece": "smooth ECE",
    "mce": "MCE",
    "mce_weighted": "weighted MCE",
    "rmsce": "RMS calibration error",
    "debiased_ece_squared": "debiased squared l2 calibration error",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "classwise ECE",
    "overconfidence": "overconfident part of the ECE",
    "underconfidence": "underconfident part of the ECE",
    "nll": "NLL",
    "brier": "Brier score",
    "confidence": "mean confidence",
    "signed_gap": "gap",
    "macro_f1": "macro-F1",
    "auroc": "AUROC of confidence",
    "aurc": "AURC",
    "eaurc": "E-AURC",
    "augrc": "AUGRC",
    "harmonic_mean": "H",
    "saturated": "share of confidences of exactly 1",
}
INSTEAD = {"route": "zero-shot where novel", "mix": "half zero-shot", "zero_shot": "zero-shot instead"}
"""Calibrators that put other predictions in place of the tuned ones, in words."""


def method_name(label: str) -> str:
    """A run's method, such as ``CoOp + margin + moments`` for ``coop+margin+moments``.

    >>> method_name("coop+margin+moments")
    'CoOp + margin + moments'
    """
    known = METHODS | PLUGINS
    return " + ".join(known.get(part, part.replace("_", " ")) for part in label.split("+"))


def calibrator_name(label: str) -> str:
    """A calibrator as the line below its method: empty for ``none``, ``+ TS``, ``zero-shot where novel``.

    >>> calibrator_name("dac+temperature"), calibrator_name("mix")
    ('+ DAC + TS', 'half zero-shot')
    """
    if label == "none":
        return ""
    if label in INSTEAD:
        return INSTEAD[label]
    steps = [INSTEAD.get(step, CALIBRATORS.get(step, step.replace("_", " "))) for step in label.split("+")]
    return "".join(f" + {step}" for step in steps).strip()


def full_name(method: str, calibrator: str) -> str:
    """Method and calibrator in one phrase.

    >>> full_name("CoOp", "temperature"), full_name("CoOp", "route")
    ('CoOp + TS', 'CoOp, zero-shot where novel')
    """
    second = calibrator_name(calibrator)
    return f"{method}{'' if not second else f' {second}' if second.startswith('+') else f', {second}'}"


def metric_name(key: str) -> str:
    """A metric, with its number of bins where that is not the headline one (``ece@10``)."""
    name, _, bins = key.partition("@")
    shown = METRICS.get(name, name.replace("_", " "))
    return f"{shown}, {bins} bins" if bins and name in METRICS else shown if not bins else key.replace("_", " ")
