#!/bin/sh
# Makes the stubs: generate.sh [PROTOS [OUT]], from ../../proto into this folder. Needs protoc, protoc-gen-go
# and protoc-gen-go-grpc.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
protos=${1:-$here/../../proto}
out=${2:-$here}
set --
for file in "$protos"/tutti/v1/*.proto; do
    name=tutti/v1/${file##*/}
    set -- "$@" "--go_opt=M$name=tutti/tuttiv1" "--go-grpc_opt=M$name=tutti/tuttiv1" "$name"
done
protoc -I"$protos" --go_out="$out" --go-grpc_out="$out" --go_opt=module=tutti --go-grpc_opt=module=tutti "$@"
