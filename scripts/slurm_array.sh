#!/usr/bin/env bash
# A sweep as a plain Slurm array, without submitit: every task walks through the same sweep and takes the runs that no
# other task is at or has done, so that tasks may be added, lost or preempted at any time.
#
#   mkdir -p runs/logs
#   sbatch --partition=gpu --gpus=1 --array=1-8 scripts/slurm_array.sh method=coop,kgcoop dataset=dtd,eurosat seed=1,2,3 data.root=/data
#   promptcal report runs            # at any time, also while the array works
#
#SBATCH --job-name=promptcal
#SBATCH --cpus-per-task=4
#SBATCH --mem=16G
#SBATCH --time=08:00:00
#SBATCH --requeue
#SBATCH --output=runs/logs/slurm-%A_%a.out
set -euo pipefail
promptcal run -m "$@" "system.threads=${SLURM_CPUS_PER_TASK:-1}" --quiet --no-report
