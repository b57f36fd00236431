"""MLflow: one MLflow run a run, at the tracking address that MLflow is set up with (``MLFLOW_TRACKING_URI``)."""

from collections.abc import Mapping
from typing import Any

from promptcal.extras import extra
from promptcal.loggers.contract import About

EXPERIMENT = "promptcal"
TAG = "promptcal.run"


class MlflowLogger:
    """Metrics by epoch; a run that goes on after a stop is found by its tag and gone on with."""

    def __init__(self, about: About) -> None:
        mlflow = extra("mlflow", "mlflow", "system.log=mlflow")
        self.client: Any = mlflow.MlflowClient()
        found = self.client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self.client.create_experiment(EXPERIMENT)
        earlier = self.client.search_runs([experiment], filter_string=f"tags.`{TAG}` = '{about.name}'")
        if earlier:
            self.run = earlier[0].info.run_id
            return
        self.run = self.client.create_run(experiment, run_name=about.name, tags={TAG: about.name}).info.run_id
        for key in ("dataset", "model", "method", "plugin"):
            self.client.log_param(self.run, key, about.config["choices"][key])
        for key in ("seed", "split_seed", "shots"):
            self.client.log_param(self.run, key, about.config[key])

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the metrics."""
        for name, value in values.items():
            self.client.log_metric(self.run, name, value, step=step)

    def close(self) -> None:
        """Say that the run is over."""
        self.client.set_terminated(self.run)


def open_logger(about: About) -> MlflowLogger:
    """The logger of a run."""
    return MlflowLogger(about)
