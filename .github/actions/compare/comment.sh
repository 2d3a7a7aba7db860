#!/usr/bin/env bash
# Writes the summary in $FOLDER into the one comment that has our mark; makes it where there is none. Needs gh.
set -euo pipefail

mark='<!-- placebench compare -->'
body=$FOLDER/comment.md
{ echo "$mark"; cat "$FOLDER/summary.md"; } >"$body"
known=$(gh api --paginate "${COMMENTS:?}" --jq ".[] | select(.body | startswith(\"$mark\")) | .id" | head -n 1)
if [ -n "$known" ]; then
    gh api --silent --method PATCH "${COMMENTS%/*/comments}/comments/$known" --field "body=@$body"
else
    gh api --silent --method POST "$COMMENTS" --field "body=@$body"
fi
