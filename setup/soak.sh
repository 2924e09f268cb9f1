#!/usr/bin/env bash
# The property tests with fresh seeds, the API under bodies that nobody means, and the whole product under random use, in
# turns: until interrupted, until something fails, or until the round in which PAGODA_SOAK_MINUTES are over (0 or unset:
# no limit).
#
# PAGODA_SOAK_SEED begins with that seed, so that a failed round can be had again.
set -euo pipefail
cd "$(dirname "$0")/.."
minutes=${PAGODA_SOAK_MINUTES:-0}
seed=${PAGODA_SOAK_SEED:-$((RANDOM * 32768 + RANDOM))}
export PAGODA_TEST_EXAMPLES=${PAGODA_TEST_EXAMPLES:-500} PAGODA_TEST_EXAMPLES_ENGINE=${PAGODA_TEST_EXAMPLES_ENGINE:-200}
export PAGODA_TEST_BODIES=${PAGODA_TEST_BODIES:-10000}
test=(.venv/bin/python -m pytest --timeout=0)

# Conversations of a round: 5 minutes, or what is left.
conversation_minutes() {
    awk -v all="$minutes" -v gone="$SECONDS" 'BEGIN { left = all > 0 ? all - gone / 60 : 5; print (left > 5 ? 5 : left < 1 ? 1 : left) }'
}
over() { awk -v all="$minutes" -v gone="$SECONDS" 'BEGIN { exit !(all > 0 && gone / 60 >= all) }'; }

trap 'echo "seed of this round: PAGODA_SOAK_SEED=$seed" >&2' ERR
for ((round = 1; ; round++)); do
    printf '\n== round %d, seed %d\n' "$round" "$seed"
    "${test[@]}" tests/kv -k stateful --hypothesis-seed="$seed"
    PAGODA_SOAK_SEED=$seed "${test[@]}" tests/platform/api/test_fuzzed.py tests/platform/api/test_described_requests.py
    PAGODA_SOAK_SEED=$seed PAGODA_SOAK_MINUTES=$(conversation_minutes) "${test[@]}" tests/e2e -m soak
    over && break
    seed=$((seed + 1))
done
