# Python with the client and numpy, for workers and for a look around:
#     docker build -f docker/python.Dockerfile -t tutti-python .
ARG BASE=python:3.11-slim
FROM ${BASE}
COPY proto /src/proto
COPY lib/rpc/proto /src/lib/rpc/proto
COPY client/python /src/client/python
RUN pip install --no-cache-dir /src/client/python \
    && rm -rf /src \
    && groupadd --gid 10001 tutti \
    && useradd --uid 10001 --gid tutti --no-create-home --shell /usr/sbin/nologin tutti
USER 10001:10001
CMD ["python3"]
