#!/usr/bin/env bash
# The README's first table: the quickstart over three seeds, then one report over all of its runs.
set -euo pipefail
runs=${1:-runs}
for seed in 1 2 3; do
  promptcal run "runs=$runs" "seed=$seed" > /dev/null
done
promptcal report "$runs/digits" --out "$runs/reports/three_seeds" --title "Base-to-novel on handwritten digits, three seeds"
