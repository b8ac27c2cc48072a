#!/usr/bin/env bash
# Makes the virtual environment that every make target uses, from the lock file alone.
#
#   scripts/bootstrap.sh VENV LOCK
#
# Needs Python 3.11 or later with its venv module, nothing else: no root, no compiler. Packages come
# from whatever index this machine is configured for (pip's or uv's own variables and files).
# PYTHON=/path/to/python chooses the interpreter.
set -euo pipefail

venv=${1:?VENV is missing}
lock=${2:?LOCK is missing}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

fail() {
  printf 'setup: %s\n' "$1" >&2
  shift
  printf '       %s\n' "$@" >&2
  exit 2
}

recent='import sys; sys.exit(sys.version_info < (3, 11))'
find_python() {
  if [[ -n ${PYTHON:-} ]]; then
    "$PYTHON" -c "$recent" 2>/dev/null || fail "PYTHON=$PYTHON does not run, or is older than 3.11."
    printf '%s\n' "$PYTHON"
    return
  fi
  local candidate
  for candidate in python3.11 python3 python3.12 python3.13 python3.14 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c "$recent" 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail 'No Python 3.11 or later was found.' \
    'Debian and Ubuntu: apt-get install python3 python3-venv' \
    'Elsewhere: install it and run again with PYTHON=/path/to/python.'
}

# A venv whose interpreter went away, or that only another user can run, is made anew.
if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
  fail "$venv exists but is no virtual environment." "Move it away, or choose another: make VENV=DIR"
fi
if [[ -d $venv ]] && ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  [[ -w $venv ]] || fail "$venv belongs to another user and does not run here." \
    'Choose another one: make VENV=DIR'
  rm -rf "$venv"
fi
if [[ ! -d $venv ]]; then
  python=$(find_python)
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    fail "This Python ($python, $version) comes without its venv module." \
      "Debian and Ubuntu: apt-get install python$version-venv"
  fi
  echo "setup: making $venv with $("$python" --version)"
  "$python" -m venv "$venv"
fi
python=$venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# uv in the version and with the hashes of the lock.
awk '/^uv==/ { on = 1 } on { print } on && !/\\$/ { exit }' "$lock" | sed 's/ *# via.*//' >"$scratch/uv.txt"
grep -q '^uv==' "$scratch/uv.txt" || fail "$lock does not pin uv."
"$python" -m pip install -qq --disable-pip-version-check --require-hashes --no-deps \
  -r "$scratch/uv.txt"

# uv does not read pip's configuration: hand over what it says, unless uv has its own.
pip_config() {
  "$python" -m pip config list 2>/dev/null |
    sed -n "s/^\(:env:\|install\|global\)\.$1='\(.*\)'\$/\2/p" | head -n 1
}
hand_over() {
  local variable=$1 value
  value=$(pip_config "$2")
  if [[ -n $value && -z ${!variable:-} ]]; then export "$variable=$value"; fi
}
if [[ -z ${UV_DEFAULT_INDEX:-}${UV_INDEX_URL:-}${UV_INDEX:-}${UV_EXTRA_INDEX_URL:-} ]]; then
  hand_over UV_DEFAULT_INDEX index-url
  hand_over UV_EXTRA_INDEX_URL extra-index-url
fi
hand_over UV_FIND_LINKS find-links
hand_over UV_INSECURE_HOST trusted-host
hand_over SSL_CERT_FILE cert
if [[ $(pip_config no-index) == true ]]; then export UV_NO_INDEX=1; fi
# Every file is held to a hash, so it does not matter which of several indexes it comes from.
export UV_INDEX_STRATEGY=${UV_INDEX_STRATEGY:-unsafe-best-match}
export UV_HTTP_TIMEOUT=${UV_HTTP_TIMEOUT:-120}
# A cache on another file system cannot be linked from; copying needs no warning.
export UV_LINK_MODE=${UV_LINK_MODE:-copy}

echo 'setup: installing the locked packages'
"$venv/bin/uv" pip sync --quiet --python "$python" --require-hashes --compile-bytecode "$lock"

# The project itself runs from the tree: a path and a launcher, no build.
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$root" >"$site/qualityhub-tree.pth"
cat >"$venv/bin/qualityhub" <<SH
#!$("$python" -c 'import sys; print(sys.executable)')
import sys

from qualityhub.__main__ import main

sys.exit(main())
SH
chmod 755 "$venv/bin/qualityhub"
echo 'setup: done'
