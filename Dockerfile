# Build: docker build -t doorward .
# Run:   docker run -p 8000:8000 -v doorward:/var/lib/doorward --read-only --cap-drop ALL \
#          -e DOORWARD_ADMIN_TOKEN=… -e DOORWARD_MASTER_KEY=… doorward
# deploy/container/doorward.yaml names the variables, docs/deployment.md#image has the commands.

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates cmake make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo rustc --locked --release -p doorward --bin doorward -- -C target-feature=+crt-static \
 && deploy/container/root.sh target/release/doorward /image

FROM scratch
COPY --from=build /image/usr /usr
COPY --from=build /image/etc /etc
COPY --from=build --chown=10001:10001 /image/tmp /tmp
COPY --from=build --chown=10001:10001 /image/var/lib/doorward /var/lib/doorward

WORKDIR /var/lib/doorward
# By number: Kubernetes verifies that it is not root.
USER 10001:10001
ENV PATH=/usr/local/bin \
    DOORWARD_CONFIG=/etc/doorward/doorward.yaml
VOLUME /var/lib/doorward
EXPOSE 8000 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=3 \
    CMD ["doorward", "health", "--ready"]
ENTRYPOINT ["doorward"]
CMD ["run"]
