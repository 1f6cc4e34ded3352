#!/bin/sh
# Installs Debian packages that are missing; says so where it can't.
#
#   deploy/debian.sh PACKAGE…
set -eu
missing=
for package in "$@"; do
	dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
root=
[ "$(id -u)" = 0 ] || root="sudo -n"
if ! command -v apt-get >/dev/null || ! $root true 2>/dev/null; then
	echo "needed, and not installed:$missing (this needs root and apt-get)" >&2
	exit 1
fi
$root apt-get update -qq
# shellcheck disable=SC2086
$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
