# Sourced by the other scripts: makes and enters the virtual environment .venv of this checkout.
#
#   source launch/environment.sh [EXTRA ...]
#
# Installs the package with the extras that are named, at the versions of constraints.txt; a second
# call with the same extras does nothing. PYTHON chooses the interpreter (3.11 or later).

cd "$(dirname "${BASH_SOURCE[0]}")/.." || return 1

_wanted="$* $(cat constraints.txt setup.py | cksum)"
if [[ "$(cat .venv/installed 2>/dev/null)" != "$_wanted" ]]; then
  echo "Setting up .venv (a few minutes the first time) ..."
  "${PYTHON:-python3}" -m venv .venv || return 1
  _pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt)
  # torch by itself and first: with it in place no other package brings another build along.
  if [[ " $* " == *" parity "* ]]; then "${_pip[@]}" torch || return 1; fi
  _extras=$(IFS=,; echo "$*")
  "${_pip[@]}" --editable ".${_extras:+[$_extras]}" || return 1
  echo "$_wanted" >.venv/installed
fi
source .venv/bin/activate
