#!/usr/bin/env bash
# Compares $BASE with $HEAD by the lines of $GATES and $ARGUMENTS; the summary goes to the job's page.
set -euo pipefail

folder=${RUNNER_TEMP:?}/placebench-compare
words=(--out "$folder")
while IFS= read -r line; do [ -z "$line" ] || words+=("--gate=$line"); done <<<"${GATES:-}"
while IFS= read -r line; do [ -z "$line" ] || words+=("$line"); done <<<"${ARGUMENTS:-}"

code=0
placebench compare "$BASE" "$HEAD" "${words[@]}" || code=$?
echo "exit-code=$code" >>"$GITHUB_OUTPUT"
if [ -f "$folder/summary.md" ]; then
    echo "folder=$folder" >>"$GITHUB_OUTPUT"
    cat "$folder/summary.md" >>"$GITHUB_STEP_SUMMARY"
else
    echo "Nothing was compared: the log of the job says why." >>"$GITHUB_STEP_SUMMARY"
fi
if [ "$code" = 3 ] && [ "${FAIL_ON_INCONCLUSIVE:-false}" != true ]; then
    echo "::warning title=placebench::inconclusive: run it again, or with more replicates"
    code=0
fi
exit "$code"
