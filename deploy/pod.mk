# In the pod: image, chart, real pods. Included by the Makefile.

CACHE := $(abspath $(or $(TENURE_CACHE),.cache))
TOOLS := $(CACHE)/tools
ARCH ?= $(subst aarch64,arm64,$(subst x86_64,amd64,$(shell uname -m)))
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
IMAGE ?= ghcr.io/tenure-dev/tenure
IMAGES := $(CACHE)/images

# The version stands in the path: a new one is a new file.
HELM4 := $(TOOLS)/helm-v4.3.1/helm
HELM3 := $(TOOLS)/helm-v3.22.0/helm
KUBECONFORM := $(TOOLS)/kubeconform-v0.8.0/kubeconform
PROMTOOL := $(TOOLS)/promtool-v0.316.0/promtool
ACTIONLINT := $(TOOLS)/actionlint-v1.7.12/actionlint
PYTHON := $(CACHE)/python/bin/python3
KUBE_BIN = $(CACHE)/kubernetes/$(shell sed -n 's/^.*k8s.io\/kubernetes \(v[0-9.]*\)$$/\1/p' tests/cluster/binaries/go.mod)/bin
KUBECTL = $(firstword $(wildcard $(KUBEBUILDER_ASSETS)/kubectl) $(KUBE_BIN)/kubectl)

CARGO_DENY := $(TOOLS)/cargo-deny-0.20.2/bin/cargo-deny

$(CARGO_DENY):
	cargo install --quiet --locked --root $(TOOLS)/cargo-deny-0.20.2 cargo-deny@0.20.2

GO_INSTALL = CGO_ENABLED=0 GOBIN=$(@D) go install
$(HELM4):
	$(GO_INSTALL) helm.sh/helm/v4/cmd/helm@v4.3.1
$(HELM3):
	$(GO_INSTALL) helm.sh/helm/v3/cmd/helm@v3.22.0
$(KUBECONFORM):
	$(GO_INSTALL) github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
$(PROMTOOL):
	$(GO_INSTALL) github.com/prometheus/prometheus/cmd/promtool@v0.316.0
$(ACTIONLINT):
	$(GO_INSTALL) github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

$(PYTHON): tests/requirements.txt
	python3 -m venv $(CACHE)/python || { deploy/debian.sh python3-venv && python3 -m venv $(CACHE)/python; }
	$(CACHE)/python/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

.PHONY: static-binary
static-binary: ## static tenure for ARCH=amd64|arm64, in OUT (default: the cache)
	deploy/static-binary.sh $(ARCH) $(or $(OUT),$(CACHE)/static/$(ARCH))

.PHONY: image
image: ## the image for ARCH, as a loadable archive (needs buildah, no engine)
	deploy/image.sh $(ARCH) $(IMAGE):$(VERSION) $(CACHE)

.PHONY: chart-lint
chart-lint: $(HELM4) $(HELM3) $(KUBECONFORM) $(PROMTOOL) $(PYTHON) kubectl ## lint and test the chart and the plain manifests
	cargo build --quiet --bin tenure
	HELM4=$(HELM4) HELM3=$(HELM3) KUBECONFORM=$(KUBECONFORM) PROMTOOL=$(PROMTOOL) KUBECTL=$(KUBECTL) \
	  TENURE_CACHE=$(CACHE) $(PYTHON) -m pytest -q tests/chart

.PHONY: kubectl
kubectl:
	hack/build-kubernetes.sh kubectl

.PHONY: chart-docs
chart-docs: $(PYTHON) ## write the chart README's table of values anew
	$(PYTHON) tests/chart/values_table.py --write

# Part of the Makefile's own verb.
test: chart-lint

# With KUBECONFIG set, the tests run in that cluster; else on a node of their own.
E2E = KUBE_BIN=$(KUBE_BIN) KUBECTL=$(KUBECTL) TENURE_CACHE=$(CACHE) TENURE_IMAGE=$(IMAGE):$(VERSION) \
  TENURE_IMAGE_ARCHIVE=$(IMAGES)/tenure-$(ARCH).tar $(PYTHON) -m pytest -q tests/e2e $(ARGS)
E2E_NEEDS = image $(PYTHON) $(if $(KUBECONFIG),kubectl,node-binaries)

.PHONY: e2e
e2e: $(HELM4) $(E2E_NEEDS) ## real pods: kubelet, containerd, the chart by Helm 4
	HELM=$(HELM4) $(E2E)

.PHONY: e2e-helm3
e2e-helm3: $(HELM3) $(E2E_NEEDS) ## the same with Helm 3
	HELM=$(HELM3) $(E2E)

.PHONY: e2e-openshift-uid
e2e-openshift-uid: $(HELM4) $(E2E_NEEDS) ## the same under uid 1000680000, as OpenShift would give it
	HELM=$(HELM4) E2E_UID=1000680000 $(E2E)

.PHONY: e2e-images
e2e-images: $(PYTHON) ## the images of the tests' own app, to load into a cluster
	deploy/debian.sh busybox-static
	$(PYTHON) tests/e2e/images.py $(CACHE)

.PHONY: image-arm64
image-arm64: ## build the arm64 image and run it under qemu-user-static
	$(MAKE) image ARCH=arm64
	deploy/run-foreign.sh arm64 $(CACHE)

.PHONY: kind
kind: ## for a person with an engine: a kind cluster with the image, the chart and its demo
	docker build --tag $(IMAGE):$(VERSION) --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git rev-parse --short=12 HEAD) .
	kind create cluster --config deploy/kind.yaml
	kind load docker-image --name tenure $(IMAGE):$(VERSION)
	helm install tenure charts/tenure --set demo.enabled=true --wait
