# Two images from one file. NOT TESTED: no Docker engine was at hand when this was written.
#
#   docker build --target service -t breakeven-service .     REST: no torch, no vLLM
#   docker build --target worker  -t breakeven-worker  .     measures, on NVIDIA GPUs
#
# Until API tokens exist the service listens on loopback only: run it with --network host.

FROM python:3.11-slim AS service
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY migrations migrations
RUN pip install --no-cache-dir "." "psycopg[binary]>=3.2" && useradd --create-home breakeven && mkdir /data && chown breakeven /data
USER breakeven
ENV BREAKEVEN_HOME=/data
ENTRYPOINT ["breakeven"]
CMD ["serve", "--no-worker"]

FROM vllm/vllm-openai:v0.32.0 AS worker
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY workers workers
COPY migrations migrations
RUN pip install --no-cache-dir "." "psycopg[binary]>=3.2" nvidia-ml-py
ENV BREAKEVEN_HOME=/data
ENTRYPOINT ["breakeven"]
CMD ["worker"]
