#!/usr/bin/env bash
# Installs placebench from $SOURCE into an environment of its own: that of the application, of $PYTHON, stays as it is.
set -euo pipefail

own=${RUNNER_TEMP:?}/placebench-environment
python=$("${PYTHON:-python}" -c 'import sys; print(sys.executable)')
[ -x "$own/bin/placebench" ] || {
    "$python" -m venv --clear "$own"
    "$own/bin/python" -m pip install --disable-pip-version-check --quiet "$SOURCE[bench]"
}
echo "python=$python" >>"$GITHUB_OUTPUT"
echo "placebench=$own/bin/placebench" >>"$GITHUB_OUTPUT"
