#!/bin/sh
# Renew the hash-locked requirement files: `make lock` (needs a network; everything else reads the files only).
# The settings of this machine's pip are left out on purpose: no host, folder or constraint of it may reach the files.
set -eu

python=${1:-.venv/bin/python}
tools=.venv-lock
[ -x "$tools/bin/pip-compile" ] || { "$python" -m venv "$tools" && "$tools/bin/python" -m pip install --quiet pip-tools; }

cd requirements
for name in runtime dev; do
    echo "# Locked from $name.in by 'make lock', hashes of every file of a version included. Do not edit." >"$name.head"
    env -u PIP_FIND_LINKS -u PIP_CONSTRAINT -u PIP_EXTRA_INDEX_URL PIP_CONFIG_FILE=/dev/null \
        "../$tools/bin/pip-compile" --quiet --generate-hashes --upgrade --strip-extras --allow-unsafe --no-header \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options \
        --output-file "$name.txt" "$name.in"
    # A remark of the tool on pip itself is left out: everything in the file is meant to be installed.
    { cat "$name.head"; grep -v '^# The following packages are considered' "$name.txt"; } >"$name.new"
    mv "$name.new" "$name.txt"
    rm "$name.head"
done
