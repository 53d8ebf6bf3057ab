#!/usr/bin/env bash
# demo.sh BUILD: a cluster, four workers, the comparison, the cluster's state; leaves nothing running.
set -euo pipefail
build=$1
data=$(dirname "$0")/../data/digits.csv.gz
tutti=$build/tutti
cluster=demo-$$
stop() { "$tutti" cluster stop --cluster "$cluster" --quiet >/dev/null 2>&1 || true; }
trap stop EXIT

"$tutti" cluster start -n 4 --cluster "$cluster" --memory-limit 64MiB | grep -v '^export' # it ends with this script
echo
"$tutti" run -n 4 --cluster "$cluster" -- "$build/examples/digits/digits-train" "$data"
echo
"$tutti" status --cluster "$cluster"
echo
"$tutti" cluster stop --cluster "$cluster"
trap - EXIT
echo
echo "next: export PATH=$(cd "$build" && pwd):\$PATH; tutti cluster start -n 4; tutti --help"
