#!/bin/sh
# Builds the static binary of one architecture, cross-compiled where it is not this machine's.
#
#   deploy/static-binary.sh amd64|arm64 OUT     makes OUT/tenure
#   PROFILE=dev                                 quicker to build, bigger
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
arch=$1 out=$2 profile=${PROFILE:-release}
case $arch in
amd64) target=x86_64-unknown-linux-musl gcc=x86_64-linux-gnu-gcc ;;
arm64) target=aarch64-unknown-linux-musl gcc=aarch64-linux-gnu-gcc ;;
*)
	echo "no such architecture: $arch (amd64 or arm64)" >&2
	exit 2
	;;
esac
cd "$root"
if ! command -v "$gcc" >/dev/null; then
	if [ "$(dpkg --print-architecture)" = "$arch" ]; then
		deploy/debian.sh gcc libc6-dev
	else
		deploy/debian.sh "$(echo "${gcc%-gcc}" | sed 's/^/gcc-/; s/_/-/')" libc6-dev-"$arch"-cross
	fi
fi
rustup target add "$target" >/dev/null 2>&1 || { echo "rustup cannot add the target $target" >&2; exit 1; }
# Rust brings musl's start files and a linker; the C compiler only compiles the few C files of `ring`.
name=$(echo "$target" | tr a-z- A-Z_)
# Nothing unwinds in a release: a panic aborts. Tables for it would be 0.3 MB.
flags=
[ "$profile" != release ] || flags=-Cforce-unwind-tables=no
env "CC_$(echo "$target" | tr - _)=$gcc" "CARGO_TARGET_${name}_LINKER=rust-lld" \
	"CARGO_TARGET_${name}_RUSTFLAGS=$flags" \
	cargo build --locked --profile "$profile" --target "$target" --bin tenure
dir=$profile
[ "$profile" != dev ] || dir=debug
mkdir -p "$out"
install -m 755 "${CARGO_TARGET_DIR:-target}/$target/$dir/tenure" "$out/tenure"
