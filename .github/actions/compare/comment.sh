#!/usr/bin/env bash
# Writes the summary in $FOLDER into the one comment that has our mark and $NAME; makes it where there is none. Needs gh.
# A comment that cannot be written is a warning: what was measured stands on the job's page.
set -euo pipefail

mark="<!-- placebench ${NAME:-compare} -->"
body=$FOLDER/comment.md
errors=$FOLDER/comment.log
{ echo "$mark"; cat "$FOLDER/summary.md"; } >"$body"

write_comment() {
    local known
    known=$(gh api --paginate "${COMMENTS:?}" --jq ".[] | select(.body | startswith(\"$mark\")) | .id") || return
    known=${known%%$'\n'*}
    if [ -n "$known" ]; then
        gh api --silent --method PATCH "${COMMENTS%/*/comments}/comments/$known" --field "body=@$body"
    else
        gh api --silent --method POST "$COMMENTS" --field "body=@$body"
    fi
}

if ! write_comment 2>"$errors"; then
    said=$(tail -n 1 "$errors")
    echo "::warning title=placebench::no comment was written: ${said:-gh failed}; the token needs the permission" \
        "pull-requests: write, which that of a pull request from a fork never has"
fi
