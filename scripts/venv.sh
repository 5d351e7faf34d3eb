#!/bin/sh
# Make .venv ready for what is named (runtime or dev) and do nothing where it already is:
#   sh scripts/venv.sh runtime|dev
# A stamp inside .venv holds the hash of everything that decides what gets installed.
set -eu

want=${1:?say runtime or dev}
venv=.venv

say_missing() {
    echo "tideshift: $1" >&2
    echo "tideshift: on Debian or Ubuntu: apt-get install $2" >&2
    exit 1
}

is_recent() { # a Python of 3.11 or later
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14 python; do
        if command -v "$candidate" >/dev/null 2>&1 && is_recent "$candidate"; then
            echo "$candidate"
            return
        fi
    done
}

stamp_of() {
    cat "requirements/$1.txt" pyproject.toml | cksum | tr ' \t' '--'
}

is_ready() { # dev holds everything that runtime holds
    [ -x "$venv/bin/tideshift" ] || return 1
    [ "$(cat "$venv/stamp-dev" 2>/dev/null)" = "$(stamp_of dev)" ] && return 0
    [ "$want" = runtime ] && [ "$(cat "$venv/stamp-runtime" 2>/dev/null)" = "$(stamp_of runtime)" ]
}

is_usable() { # not left half made, and not moved: its scripts name the folder that it was made in
    [ -x "$venv/bin/python" ] && is_recent "$venv/bin/python" || return 1
    if [ -e "$venv/made-in" ]; then [ "$(cat "$venv/made-in")" = "$(pwd)" ]; else "$venv/bin/python" -m pip --version >/dev/null 2>&1; fi
}

if is_usable; then
    is_ready && exit 0
else
    python=$(find_python)
    [ -n "$python" ] || say_missing "no Python 3.11 or later was found" "python3 python3-venv"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        say_missing "$python has no venv module with pip in it" \
            "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
pwd >"$venv/made-in"

echo "tideshift: installing the $want requirements into $venv"
rm -f "$venv/stamp-$want"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "requirements/$want.txt"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
stamp_of "$want" >"$venv/stamp-$want"
