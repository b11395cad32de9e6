#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (default 30s) each, then the slow model of the arithmetic for
# OPERATIONS (default 10^8).
set -euo pipefail

readonly go=${GO:-go}

for package in $("$go" list ./...); do
	for target in $("$go" test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
		printf 'fuzz: %s %s\n' "$package" "$target"
		"$go" test -run='^$' -fuzz="^$target\$" -fuzztime="${FUZZTIME:-30s}" "$package"
	done
done
printf 'fuzz: the model, %s operations\n' "${OPERATIONS:-100000000}"
"$go" test -run='^TestModel$' -timeout=0 ./internal/bucket -model.ops="${OPERATIONS:-100000000}"
