#!/bin/sh
# Makes .venv and installs Pagoda in it, editable, with the versions pinned in requirements/constraints.txt.
#
#   setup/environment.sh all|dev [PYTHON]
#
# A stamp named by the inputs' checksum makes the second call instant.
set -eu
cd "$(dirname "$0")/.."

extra=${1:?all or dev}
python=${2:-python3}

inputs=$(cat pyproject.toml requirements/constraints.txt | cksum | tr ' ' '-')
stamp=.venv/.installed-$extra-$inputs
[ -e "$stamp" ] && [ -x .venv/bin/python ] && exit 0

if ! command -v "$python" >/dev/null; then
    echo "Pagoda needs Python 3.11 or newer; '$python' is not on the PATH. Name one: make PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Pagoda needs Python 3.11 or newer; '$python' is $("$python" -V 2>&1). Name another: make PYTHON=python3.11" >&2
    exit 1
fi
if ! command -v g++ >/dev/null && ! command -v c++ >/dev/null; then
    echo "Pagoda needs a C++ compiler (g++): the engine compiles its CPU attention once. On Debian: apt-get install g++" >&2
    exit 1
fi

if [ ! -x .venv/bin/python ]; then
    echo "Creating the environment in .venv with $("$python" -V 2>&1)"
    "$python" -m venv .venv
fi
echo "Installing pagoda-chat[$extra] (a few minutes the first time)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint requirements/constraints.txt --editable ".[$extra]"

rm -f .venv/.installed-*
touch ".venv/.installed-all-$inputs" # dev contains all
touch "$stamp"
