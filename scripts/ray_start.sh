#!/usr/bin/env bash
# A Ray cluster by hand, and a sweep on it. All nodes need promptcal[ray] and see the folders of runs, data and cache
# under the same paths.
#
#   head node:            scripts/ray_start.sh head
#   every other node:     scripts/ray_start.sh join HEAD_ADDRESS
#   anywhere among them:  scripts/ray_start.sh sweep HEAD_ADDRESS method=coop,kgcoop seed=1,2,3 --option num_gpus=1
#   every node, at last:  ray stop
set -euo pipefail
port=${RAY_PORT:-6379}
case "${1:-}" in
  head) ray start --head --port="$port" --disable-usage-stats ;;
  join) ray start --address="$2:$port" --disable-usage-stats ;;
  sweep)
    address="$2:$port"
    shift 2
    promptcal run -m "$@" --on ray --option address="$address" --quiet
    ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
