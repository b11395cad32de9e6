#!/usr/bin/env bash
# Fails if `make generate` would change a file of the work tree.
set -euo pipefail

state() { git ls-files -z --cached --others --exclude-standard | xargs -0 sha256sum 2>/dev/null || true; }

before=$(state)
make generate >/dev/null
if ! changed=$(diff <(printf '%s\n' "$before") <(state)); then
	printf 'make generate changes files; run it and commit what it wrote:\n%s\n' "$changed" >&2
	exit 1
fi
