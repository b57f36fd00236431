"""Where a run is logged besides its own folder; one module is one logger."""
