#!/usr/bin/env bash
# Writes the reference pages that come from the code, or says which are out of date.
#
#   scripts/references.sh VENV [--check]
set -euo pipefail

venv=${1:?VENV is missing}
check=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$venv/bin/python
export QH_DEBUG=true COLUMNS=100 NO_COLOR=1
# Defaults that depend on the machine or the user are written as words by the generators.

generate() {
  case $1 in
    docs/openapi.yaml)
      "$python" manage.py spectacular --validate --fail-on-warn --file "$2" ;;
    docs/reference/settings.md)
      "$python" manage.py settings_page --file "$2" ;;
  esac
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
stale=0
for page in docs/openapi.yaml docs/reference/settings.md; do
  fresh=$scratch/$(basename "$page")
  generate "$page" "$fresh"
  if cmp -s "$fresh" "$page"; then continue; fi
  if [[ $check == --check ]]; then
    stale=1
    echo "out of date: $page"
    diff -u "$page" "$fresh" 2>&1 | head -n 40 || true
  else
    mkdir -p "$(dirname "$page")"
    cp "$fresh" "$page"
    echo "wrote $page"
  fi
done
# Command line and rules: many pages, one generator.
"$python" -m qualityhub.cli.references ${check:+--check} || stale=1
if ((stale)); then
  echo 'Run `make schema` and commit the result.' >&2
  exit 1
fi
