# An engine: torch and transformers without Django. Build from the repository's root.
# The compiler stays in the image: the CPU attention kernel is compiled for the processor it runs on.

FROM python:3.12-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 10001 pagoda && install -d -o pagoda -g pagoda /var/lib/pagoda
WORKDIR /build
RUN python -m venv /opt/pagoda
COPY pyproject.toml README.md LICENSE ./
COPY requirements/ requirements/
COPY platform/ platform/
COPY inference/ inference/
COPY kernels/ kernels/
RUN /opt/pagoda/bin/pip install --no-cache-dir --constraint requirements/constraints.txt '.[engine]'
ENV PATH=/opt/pagoda/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PAGODA_HOME=/var/lib/pagoda
USER pagoda
EXPOSE 9000
CMD ["sh", "-c", "pagoda-inference prepare-model && exec pagoda-inference serve --require-accounts"]
