#!/usr/bin/env bash
# Compares $BASE, by default that of the pull request, with $HEAD by the lines of $GATES and $ARGUMENTS, in the environment of $PYTHON. Each call has its own
# folder.
set -euo pipefail

folder=$(mktemp -d "${RUNNER_TEMP:?}/placebench-compare.XXXXXX")
errors=$folder.log
echo "folder=$folder" >>"$GITHUB_OUTPUT"
words=(--out "$folder" ${PYTHON:+"--python=$PYTHON"})
while IFS= read -r line; do [ -z "$line" ] || words+=("--gate=$line"); done <<<"${GATES:-}"
while IFS= read -r line; do
    # A line is one argument, or an option and its value.
    if [[ $line =~ ^(--?[a-z-]+)[[:space:]]+(.+)$ ]]; then
        words+=("${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}")
    elif [ -n "$line" ]; then
        words+=("$line")
    fi
done <<<"${ARGUMENTS:-}"

if [ -z "${BASE:-}" ]; then
    # GitHub merges a pull request with the newest base, which base.sha of the event may be older than; only a checkout
    # of the pull request's own head has no such merge.
    if [ -z "${PULL_REQUEST_HEAD:-}" ] || [ "$(git rev-parse --verify --quiet 'HEAD^2')" = "$PULL_REQUEST_HEAD" ]; then
        BASE=$(git rev-parse 'HEAD^1')
    else
        BASE=$(git merge-base "$PULL_REQUEST_BASE" HEAD)
    fi
fi

code=0
"${PLACEBENCH:-placebench}" compare "$BASE" "$HEAD" "${words[@]}" 2> >(tee "$errors" >&2) || code=$?
wait
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
if [ "$code" = 3 ] && [ "${FAIL_ON_INCONCLUSIVE:-false}" != true ]; then
    reason=$(grep '^placebench compare: ' "$errors" | tail -n 1 || true)
    echo "::warning title=placebench::${reason:-inconclusive: a gate is undecided; more replicates narrow its interval}"
    code=0
fi
exit "$code"
