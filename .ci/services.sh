#!/usr/bin/env bash
# Starts this machine's PostgreSQL and Redis unless the named servers already answer.
#
#   .ci/services.sh DATABASE_URL REDIS_URL
set -euo pipefail
postgresql=${1:?a DATABASE_URL}
redis=${2:?a REDIS_URL}

# The tests' database is created from the server's own `postgres` one.
postgresql_answers() { .venv/bin/python -c 'import psycopg, sys; psycopg.connect(sys.argv[1], connect_timeout=3)' "${postgresql%/*}/postgres" 2>/dev/null; }
redis_answers() { .venv/bin/python -c 'import redis, sys; redis.from_url(sys.argv[1]).ping()' "$redis" 2>/dev/null; }
wait_for() {
    for _ in $(seq 50); do
        "$1" && return
        sleep 0.2
    done
    echo "$1: no, after 10 s" >&2
    exit 1
}

if ! postgresql_answers; then
    version=$(ls /etc/postgresql | sort -n | tail -1)
    # The tests' role signs in from this machine without a password.
    sed -i 's/^\(host\s\+all\s\+all\s\+127\.0\.0\.1\/32\s\+\)\S\+$/\1trust/' "/etc/postgresql/$version/main/pg_hba.conf"
    pg_ctlcluster --skip-systemctl-redirect "$version" main restart
    wait_for postgresql_answers
fi
if ! redis_answers; then
    redis-server --daemonize yes --bind 127.0.0.1 --save '' --appendonly no --dir /tmp >/dev/null
    wait_for redis_answers
fi
