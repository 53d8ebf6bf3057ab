#!/usr/bin/env bash
# The tour of docs/operating.md: three agents and a coordinator, spoilt one way after the other, and what a person
# sees. Usage: tour.sh FOLDER-OF-PROGRAMS
set -uo pipefail
programs=$(realpath "$1") here=$(realpath "$(dirname "$0")") folder=$(mktemp -d) port=29871
export NO_COLOR=1
cd "$folder" || exit 1

coordinator() {
    "$programs/tutti-coordinator" --listen 127.0.0.1:$port --store "lmdb:$folder/store" \
        --heartbeat-interval 250ms --heartbeat-timeout 2s >>coordinator.log 2>&1 &
    coordinator_pid=$!
    await listens
}
agent() { # rank, the coordinator's address
    "$programs/tutti-agent" --coordinator "$2" --listen 127.0.0.1:$((port + 1 + $1)) --world-size 3 --rank "$1" \
        >>"agent$1.log" 2>&1 &
    pids[$1]=$!
}
tutti() { "$programs/tutti" "$@" --agent 127.0.0.1:$((port + 1)); }
say() { printf '\n## %s\n' "$*"; }
await() { # a command that comes to succeed within 30 s, on a busy machine
    for _ in $(seq 300); do "$@" && return; sleep 0.1; done
    return 1
}
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
log() { # of a process, its last line with these words
    await grep -qs "$2" "$1.log"
    grep -h "$2" "$1.log" | tail -1 | cut -d' ' -f2- | sed "s/^/$1: /"
}
finish() {
    exec 2>/dev/null
    kill -CONT "${pids[@]}" "$relay_pid"
    kill -9 "${pids[@]}" "$coordinator_pid" "$relay_pid"
    wait
    rm -rf "$folder"
}
trap finish EXIT

declare -a pids
coordinator
python3 "$here/relay.py" 127.0.0.1:$port >relay.address &
relay_pid=$!
await test -s relay.address
agent 0 127.0.0.1:$port
agent 1 127.0.0.1:$port
agent 2 "$(cat relay.address)"
sleep 1
tutti barrier

say "kill: rank 0 waits in a barrier, rank 2 is killed"
tutti barrier --rank 0 &
await eval 'tutti stall >stall.log 2>/dev/null; grep -q barrier stall.log' # which exits with 1, as an op waits
{ kill -9 "${pids[2]}"; wait "${pids[2]}"; } 2>/dev/null
wait %tutti 2>/dev/null
sleep 0.8
log agent0 'is lost'
log coordinator 'is lost'

say "return: a fresh process takes the seat"
agent 2 "$(cat relay.address)"
sleep 0.8
log coordinator 'is back'
log agent0 'goes on at'
tutti barrier && echo "barrier: done"

say "stop: rank 1 is stopped"
kill -STOP "${pids[1]}"
tutti barrier --rank 0
log coordinator 'is lost'
kill -CONT "${pids[1]}"
sleep 1.5
log agent1 'does not know this rank'
{ kill -9 "${pids[1]}"; wait "${pids[1]}"; } 2>/dev/null
agent 1 127.0.0.1:$port
sleep 0.8

say "partition: nothing passes between rank 2 and the coordinator"
kill -STOP "$relay_pid"
sleep 2.8
log agent0 'rank 2 is lost'
tutti barrier --rank 0
kill -CONT "$relay_pid"
sleep 2
log agent2 'does not know this rank'
await grep -qs 'start the agent again' agent2.log
tail -1 agent2.log | cut -d' ' -f2- | sed 's/^/agent2: /'
{ kill -9 "${pids[2]}"; wait "${pids[2]}"; } 2>/dev/null
agent 2 "$(cat relay.address)"
sleep 0.8

say "mismatch: rank 1 gives another shape"
/usr/bin/python3 -c '
import numpy
for rank in range(3):
    numpy.save("grad.%d.npy" % rank, numpy.ones(5 if rank == 1 else 4, numpy.float32))'
tutti all-reduce grad.0.npy grad.1.npy grad.2.npy

say "step: rank 2 repeats what the others have done"
for rank in 0 1 2; do
    tutti put grad.0.npy --name grad --rank $rank > put.log
done
for rank in 1 2; do
    tutti all-reduce grad --rank $rank --step $((rank == 2 ? 6 : 7)) > other.$rank 2>&1 &
    others="${others:-} $!"
done
tutti all-reduce grad --rank 0 --step 7
wait $others

say "coordinator: killed, and started again on its store"
{ kill -9 "$coordinator_pid"; wait "$coordinator_pid"; } 2>/dev/null
sleep 0.5
log agent0 'lost the coordinator'
tutti status
coordinator
sleep 2.5
log coordinator 'found in the store'
log agent0 'in touch'
tutti status | head -1
