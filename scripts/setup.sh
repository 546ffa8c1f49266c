#!/usr/bin/env bash
# Sets up .venv: the engine (llama-cpp-python, built from source once, pip keeps the wheel) and slotpool itself.
# usage: scripts/setup.sh EXTRAS   e.g. scripts/setup.sh test
set -euo pipefail
cd "$(dirname "$0")/.."
extras=${1:-}
python=${PYTHON:-python3}

for tool in "$python" cmake make c++; do
    command -v "$tool" > /dev/null || { echo "slotpool: expected $tool on this machine, found none. Install it and run make again." >&2; exit 2; }
done
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "slotpool: expected Python 3.10 or newer, found $("$python" -V). Try make PYTHON=python3.12." >&2; exit 2; }

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip --disable-pip-version-check)

# the engine: the range that pyproject.toml pins, with the RPC backend
engine=$(.venv/bin/python - <<'PY'
import re, pathlib
print(re.search(r'"(llama-cpp-python[^"]*)"', pathlib.Path("pyproject.toml").read_text())[1])
PY
)
if ! .venv/bin/python -c 'import llama_cpp' 2> /dev/null; then
    echo "slotpool: installing the engine, $engine (built from source the first time: about 11 minutes on two cores)"
    CMAKE_ARGS="${CMAKE_ARGS:--DGGML_RPC=ON}" "${pip[@]}" install -q "$engine" &
    job=$!
    trap 'kill $job 2> /dev/null || true' EXIT
    start=$SECONDS
    while kill -0 $job 2> /dev/null; do
        sleep 1
        elapsed=$((SECONDS - start))
        if [ $elapsed -gt 0 ] && [ $((elapsed % 30)) -eq 0 ]; then
            printf 'slotpool: still building the engine, %d:%02d\n' $((elapsed / 60)) $((elapsed % 60))
        fi
    done
    wait $job
    trap - EXIT
fi

echo "slotpool: installing slotpool${extras:+ and what $extras needs}"
"${pip[@]}" install -q ".${extras:+[$extras]}"
