# Build: docker build -t doorward .
# Run:   docker run -p 8000:8000 -v doorward:/var/lib/doorward doorward

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends cmake make \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --locked --release \
 && cp target/release/doorward /usr/local/bin/doorward

FROM debian:bookworm-slim
# The certificates verify https upstreams and foreign providers.
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin doorward \
 && install -d -o doorward -g doorward -m 0700 /var/lib/doorward
COPY --from=build /usr/local/bin/doorward /usr/local/bin/doorward
COPY conf/doorward.yaml conf/routes.yaml /opt/doorward/conf/
COPY conf/routes.d/ /opt/doorward/conf/routes.d/

WORKDIR /opt/doorward
USER doorward
ENV DOORWARD_DATA=/var/lib/doorward
VOLUME /var/lib/doorward
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["doorward", "health", "-c", "conf/doorward.yaml"]
ENTRYPOINT ["doorward"]
CMD ["run", "-c", "conf/doorward.yaml"]
