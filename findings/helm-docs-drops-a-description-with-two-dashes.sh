#!/usr/bin/env bash
# helm-docs 1.14.2: the description of a value is lost if a word of it begins with two dashes, as in "take it from a file: --set-file ca=ca.crt".
# Its old form of comments is `# key -- description`, and it takes the first part for the key even where the comment begins with `# --`.
# Nothing is said, and the exit code is 0.
#
# Seen: the row of the value has no description, that of its neighbour with one dash has; no warning.
# Builds the pinned module in a temporary folder, runs it without phpprof, and fails if it does anything else.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
GOBIN=$folder go install github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2
mkdir chart
printf 'apiVersion: v2\nname: chart\nversion: 0.1.0\n' >chart/Chart.yaml
cat >chart/values.yaml <<'YAML'
# -- The authority. Take it from a file: --set-file two=ca.crt
two: ""
# -- The authority. Take it from a file: -set-file one=ca.crt
one: ""
YAML
./helm-docs --dry-run --log-level=warning >page 2>said
rows=$(grep -E '^\| (one|two) ' page)
echo "$rows"
expected='| one | string | `""` | The authority. Take it from a file: -set-file one=ca.crt |
| two | string | `""` |  |'
[ "$rows" = "$expected" ] && [ ! -s said ]
