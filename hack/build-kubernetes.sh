#!/bin/sh
# Builds programs of a Kubernetes control plane or node from Go modules, each once, into the cache.
#
#   hack/build-kubernetes.sh etcd kube-apiserver kubectl
#
# The versions are those of tests/cluster/binaries/go.mod. The cache is ${TENURE_CACHE:-.cache}; a
# binary in it is complete (it is renamed into place) and is never built again. What the variables
# TEST_ASSET_ETCD, TEST_ASSET_KUBE_APISERVER or KUBEBUILDER_ASSETS already give is not built at all.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
module=$root/tests/cluster/binaries
version=$(sed -n 's/^.*k8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' "$module/go.mod")
[ -n "$version" ] || { echo "no version of k8s.io/kubernetes in $module/go.mod" >&2; exit 1; }
bin=${TENURE_CACHE:-$root/.cache}/kubernetes/$version/bin
mkdir -p "$bin"

# Prints the path that the environment gives for a program, if it gives one.
given() {
	case $1 in
	etcd) path=${TEST_ASSET_ETCD:-} ;;
	kube-apiserver) path=${TEST_ASSET_KUBE_APISERVER:-} ;;
	kubectl) path=${TEST_ASSET_KUBECTL:-} ;;
	*) path= ;;
	esac
	if [ -z "$path" ] && [ -n "${KUBEBUILDER_ASSETS:-}" ] && [ -x "$KUBEBUILDER_ASSETS/$1" ]; then
		path=$KUBEBUILDER_ASSETS/$1
	fi
	echo "$path"
}

package() {
	case $1 in
	etcd) echo go.etcd.io/etcd/server/v3 ;;
	*) echo "k8s.io/kubernetes/cmd/$1" ;;
	esac
}

major=$(echo "$version" | sed 's/^v\([0-9]*\)\..*/\1/')
minor=$(echo "$version" | sed 's/^v[0-9]*\.\([0-9]*\)\..*/\1/')
stamp=k8s.io/component-base/version

build() {
	partial=$bin/.$1.$$
	(
		cd "$module"
		CGO_ENABLED=0 go build -trimpath -buildvcs=false \
			-ldflags "-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor" \
			-o "$partial" "$(package "$1")"
	)
	mv "$partial" "$bin/$1"
}

for name in "$@"; do
	path=$(given "$name")
	if [ -n "$path" ]; then
		echo "$name: given by the environment, $path"
		continue
	fi
	# One builder at a time: several work trees may share a cache.
	exec 9>"$bin/.lock"
	flock 9
	if [ -x "$bin/$name" ]; then
		echo "$name: there already, $bin/$name"
	else
		echo "$name: building $(package "$name") from $module (a cold build of kube-apiserver takes minutes)"
		start=$(date +%s)
		build "$name"
		echo "$name: built in $(($(date +%s) - start)) s, $bin/$name"
	fi
	exec 9>&-
done
