#!/usr/bin/env bash
# From a bare Debian 12 to streamed text: packages, build, the embedded pair over eight worker
# processes, one streamed answer with its figures.
#   scripts/demo.sh            ends after the answer
#   scripts/demo.sh --serve    goes on serving until Ctrl-C
set -euo pipefail
cd "$(dirname "$0")/.."

keep=no
case "${1:-}" in
  "") ;;
  --serve) keep=yes ;;
  *) echo "usage: scripts/demo.sh [--serve]" >&2; exit 2 ;;
esac

say() { printf '\n== %s\n' "$*"; }

say "Packages"
scripts/setup.sh

say "Build (a few minutes the first time)"
cmake --preset release >/dev/null
cmake --build --preset release --target copse copse-coordinator copse-worker copse-gateway

work=$(mktemp -d)
server=
finish() {
  status=$?
  if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
    kill -TERM "$server"
    wait "$server" || true
  fi
  rm -rf "$work"
  exit "$status"
}
trap finish EXIT INT TERM

say "Start: coordinator, gateway and eight workers"
build/copse serve --config configs/sapling-tp8.yaml --port 0 --port-file "$work/port" \
  --log-level warn &
server=$!

deadline=$((SECONDS + 120))
until [ -s "$work/port" ] && curl -sf "http://127.0.0.1:$(cat "$work/port")/health" >/dev/null; do
  kill -0 "$server" 2>/dev/null || { echo "the server ended" >&2; exit 1; }
  [ "$SECONDS" -lt "$deadline" ] || { echo "the server was not ready in time" >&2; exit 1; }
  sleep 0.2
done
url="http://127.0.0.1:$(cat "$work/port")"
pgrep -P "$(pgrep -P "$server" -f copse-coordinator)" -a | cut -c1-72

say "One streamed answer"
python3 scripts/stream_client.py "$url"

say "Where to send a request"
question="What does the function join in posixpath do?"
messages="[{\"role\":\"user\",\"content\":\"$question\"}]"
body="{\"model\":\"sapling\",\"stream\":true,\"messages\":$messages}"
request="curl -N $url/v1/chat/completions -H 'Content-Type: application/json' -d '$body'"
if [ "$keep" = yes ]; then
  echo "serving at $url until Ctrl-C; for example:"
  echo "  $request"
  wait "$server"
else
  echo "start it again with:  build/copse serve --config configs/sapling-tp8.yaml"
  echo "then send requests to http://127.0.0.1:8000, for example:"
  echo "  ${request//$url/http:\/\/127.0.0.1:8000}"
fi
