#!/bin/sh
# Builds tests/peer, the client-go elector, into the cache. Go's own cache makes a second build free,
# so it is always asked: a stale peer would test something else than its source says.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bin=${TENURE_CACHE:-$root/.cache}/peer/bin
mkdir -p "$bin"
partial=$bin/.tenure-peer.$$
cd "$root/tests/peer"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$partial" .
mv "$partial" "$bin/tenure-peer"
echo "peer: $bin/tenure-peer"
