# One recipe for every engine and architecture. The first stage is cross-compiled on the builder's own architecture;
# `make image` puts a folder with ready binaries in its place (--build-context bin=FOLDER).
FROM --platform=$BUILDPLATFORM docker.io/library/rust:1.95-bookworm AS bin
WORKDIR /src
COPY . .
ARG TARGETARCH
ARG REVISION=unknown
RUN TENURE_BUILD_COMMIT="$REVISION" deploy/static-binary.sh "$TARGETARCH" /

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tenure" \
      org.opencontainers.image.description="Leader election with a fencing epoch for any application, as a sidecar" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/tenure-dev/tenure" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=bin /tenure /tenure
ENV TENURE_LOG_FORMAT=json
USER 65532:65532
ENTRYPOINT ["/tenure"]
CMD ["sidecar"]
