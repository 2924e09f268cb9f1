# The web tier, the worker and beat: Django without torch. Build from the repository's root.

FROM node:24-bookworm-slim AS frontend
WORKDIR /build/frontend
COPY frontend/package.json frontend/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY frontend/ ./
RUN npm run build

FROM python:3.12-slim-bookworm AS packages
WORKDIR /build
RUN python -m venv /opt/pagoda
COPY pyproject.toml README.md LICENSE ./
COPY requirements/ requirements/
COPY platform/ platform/
COPY inference/ inference/
COPY kernels/ kernels/
RUN /opt/pagoda/bin/pip install --no-cache-dir --constraint requirements/constraints.txt '.[web]'

FROM python:3.12-slim-bookworm
RUN useradd --create-home --uid 10001 pagoda && install -d -o pagoda -g pagoda /var/lib/pagoda
COPY --from=packages /opt/pagoda /opt/pagoda
WORKDIR /opt/app
COPY manage.py ./
COPY --from=frontend /build/frontend/dist /opt/app/frontend/dist
ENV PATH=/opt/pagoda/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PAGODA_HOME=/var/lib/pagoda \
    PAGODA_FRONTEND_DIST=/opt/app/frontend/dist
USER pagoda
EXPOSE 8000
CMD ["uvicorn", "pagoda.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--ws-max-size", "262144", \
     "--timeout-graceful-shutdown", "10", "--no-access-log", "--no-server-header"]
