#!/bin/sh
# Builds the Dockerfile with buildah, which needs no engine and pulls nothing: the stage `bin` is replaced by a folder
# that holds the binary. Makes CACHE/images/tenure-ARCH.tar (docker-archive) and tells its size.
#
#   deploy/image.sh amd64|arm64 NAME:TAG CACHE
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
arch=$1 name=$2 cache=$3
cd "$root"
command -v buildah >/dev/null || deploy/debian.sh buildah
deploy/static-binary.sh "$arch" "$cache/static/$arch"
images=$cache/images
mkdir -p "$images"
work=$(mktemp -d "$images/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
store="--storage-driver vfs --root $work/store --runroot $work/run"
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
date=$(git log -1 --format=%ct 2>/dev/null || echo 0)
archive=$images/tenure-$arch.tar
# shellcheck disable=SC2086
{
	buildah $store bud --quiet --isolation chroot --platform "linux/$arch" --build-context "bin=$cache/static/$arch" \
		--build-arg "VERSION=${name##*:}" --build-arg "REVISION=$revision" --timestamp "$date" --tag "$name" . >/dev/null
	rm -f "$archive"
	buildah $store push --quiet "$name" "docker-archive:$archive:$name"
}
layer=$(tar -xOf "$archive" --wildcards '*.tar' 2>/dev/null | gzip -9 | wc -c)
echo "$archive: $name, $layer bytes compressed"
[ "$layer" -lt 3000000 ] || [ "${PROFILE:-release}" != release ] || {
	echo "the image is bigger than 3 MB" >&2
	exit 1
}
