"""Post-hoc calibrators: fit on one split, transform another."""

from promptcal.calibrators.bin_mean_shift import BinMeanShift
from promptcal.calibrators.building import build_calibrator, fit_for, no_validation
from promptcal.calibrators.calattn import CalAttn
from promptcal.calibrators.chain import Chain
from promptcal.calibrators.contract import CalibrationWarning, Calibrator, InSampleWarning
from promptcal.calibrators.dac import DAC
from promptcal.calibrators.density_ratio import DensityRatio
from promptcal.calibrators.dirichlet import Dirichlet
from promptcal.calibrators.ensemble_temperature import EnsembleTemperature
from promptcal.calibrators.fixed_temperature import FixedTemperature
from promptcal.calibrators.histogram import Histogram
from promptcal.calibrators.identity import Identity
from promptcal.calibrators.isotonic import Isotonic
from promptcal.calibrators.logit_mlp import LogitMLP
from promptcal.calibrators.loglinear import LogLinear
from promptcal.calibrators.matrix import MatrixScaling
from promptcal.calibrators.mix import Mix
from promptcal.calibrators.multi_isotonic import MultiIsotonic
from promptcal.calibrators.parametrised_temperature import ParametrisedTemperature
from promptcal.calibrators.route import Route
from promptcal.calibrators.sals import SaLS
from promptcal.calibrators.sats import SATS
from promptcal.calibrators.saving import load_calibrator
from promptcal.calibrators.spline import Spline
from promptcal.calibrators.temperature import TemperatureScaling
from promptcal.calibrators.temperature_ece import TemperatureECE
from promptcal.calibrators.vector import VectorScaling
from promptcal.calibrators.zero_shot import ZeroShot

__all__ = [
    "DAC",
    "SATS",
    "BinMeanShift",
    "CalAttn",
    "CalibrationWarning",
    "Calibrator",
    "Chain",
    "DensityRatio",
    "Dirichlet",
    "EnsembleTemperature",
    "FixedTemperature",
    "Histogram",
    "Identity",
    "InSampleWarning",
    "Isotonic",
    "LogLinear",
    "LogitMLP",
    "MatrixScaling",
    "Mix",
    "MultiIsotonic",
    "ParametrisedTemperature",
    "Route",
    "SaLS",
    "Spline",
    "TemperatureECE",
    "TemperatureScaling",
    "VectorScaling",
    "ZeroShot",
    "build_calibrator",
    "fit_for",
    "load_calibrator",
    "no_validation",
]
