#!/usr/bin/env bash
# Installs what copse is built and tested with: Debian 12 packages, nothing else. Does nothing when
# all are there.
#   scripts/setup.sh            install what is missing
#   scripts/setup.sh --list     print the packages
set -euo pipefail

packages=(
  # build
  ca-certificates git cmake ninja-build g++ ccache mold pkg-config
  # control plane: messages, sockets, keys
  libzmq3-dev cppzmq-dev libmsgpack-cxx-dev libboost-dev libssl-dev libsodium-dev
  # logs, JSON, YAML, command line, metrics
  libspdlog-dev libfmt-dev nlohmann-json3-dev libyaml-cpp-dev libcli11-dev prometheus-cpp-dev
  # vector code, the tokenizer's expressions
  libhwy-dev libpcre2-dev
  # tests and checks
  libgtest-dev libgmock-dev libbenchmark-dev clang-format clang-tidy python3 curl procps iproute2
)

case "${1:-}" in
  "") ;;
  --list) printf '%s\n' "${packages[@]}"; exit 0 ;;
  *) echo "usage: scripts/setup.sh [--list]" >&2; exit 2 ;;
esac

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    if ! dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
      echo "$package"
    fi
  done
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "setup: this is not a Debian system; copse needs the equivalents of:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 1
fi

mapfile -t missing < <(missing_packages)
if [ "${#missing[@]}" -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are installed"
  exit 0
fi
echo "setup: installing ${#missing[@]} packages: ${missing[*]}"

root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: run this as root once, or install sudo" >&2
    exit 1
  fi
  root=(sudo)
fi

apt() {
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 \
    -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

if ! apt update || ! apt install -y --no-install-recommends "${missing[@]}"; then
  echo "setup: apt-get failed; without a network, install these by other means:" >&2
  printf '  %s\n' "${missing[@]}" >&2
  exit 1
fi
mapfile -t missing < <(missing_packages)
if [ "${#missing[@]}" -ne 0 ]; then
  echo "setup: still missing: ${missing[*]}" >&2
  exit 1
fi
