"""Post-hoc calibrators: fit on one split, transform another."""

from promptcal.calibrators.building import build_calibrator
from promptcal.calibrators.chain import Chain
from promptcal.calibrators.contract import CalibrationWarning, Calibrator, InSampleWarning
from promptcal.calibrators.identity import Identity
from promptcal.calibrators.mix import Mix
from promptcal.calibrators.route import Route
from promptcal.calibrators.saving import load_calibrator
from promptcal.calibrators.temperature import TemperatureScaling
from promptcal.calibrators.zero_shot import ZeroShot

__all__ = [
    "CalibrationWarning",
    "Calibrator",
    "Chain",
    "Identity",
    "InSampleWarning",
    "Mix",
    "Route",
    "TemperatureScaling",
    "ZeroShot",
    "build_calibrator",
    "load_calibrator",
]
