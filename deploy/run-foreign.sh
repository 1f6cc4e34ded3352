#!/bin/sh
# Runs the binary of another architecture's image under qemu-user-static: version, help, usage error, and a sidecar that
# answers.
#
#   deploy/run-foreign.sh arm64 CACHE
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
arch=$1 cache=$2
case $arch in
arm64) qemu="qemu-aarch64-static" ;;
*) echo "no emulator known for $arch" >&2 && exit 2 ;;
esac
command -v "$qemu" >/dev/null || "$root/deploy/debian.sh" qemu-user-static
work=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; rm -rf "$work"' EXIT
# The binary as the image holds it, not as it was built.
tar -xf "$cache/images/tenure-$arch.tar" -C "$work"
layer=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[0]["Layers"][0])' "$work/manifest.json")
tar -xf "$work/$layer" -C "$work" tenure
file=$(od -An -tx1 -j18 -N1 "$work/tenure" | tr -d ' ')
[ "$file" = b7 ] || { echo "not an aarch64 binary: machine $file" >&2; exit 1; }
"$qemu" "$work/tenure" --version
"$qemu" "$work/tenure" sidecar --lease-duration=1s --lease-name=x 2>&1 && exit 1
"$qemu" "$work/tenure" sidecar --dev --lease-name=x --listen=127.0.0.1:14040 --admin-listen=127.0.0.1:14041 >"$work/log" 2>&1 &
pid=$!
for _ in $(seq 100); do
	if "$qemu" "$work/tenure" status --url=http://localhost:14040 --json >"$work/status" 2>/dev/null; then break; fi
	sleep 0.1
done
grep -q '"leader": *true' "$work/status" || { cat "$work/log" "$work/status" >&2; exit 1; }
kill "$pid"
wait "$pid"
pid=
echo "$arch: runs, leads in --dev, and ends in order"
