#!/usr/bin/env bash
# Everything that a change must pass, on a fresh Debian 12 as in CI: packages, build, tests, style.
#   scripts/check.sh              all of it but the two below
#   scripts/check.sh --sanitize   also under the address, undefined-behaviour and thread sanitizers
#   scripts/check.sh --tidy       clang-tidy over every file, not over the quick folders only
#   scripts/check.sh --quick      without end-to-end tests, headers alone and clang-tidy
# Ends with a line for each step and what was left out; exits 0 only if every step passed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null
export CTEST_OUTPUT_ON_FAILURE=1 LC_ALL=C.UTF-8

sanitize=no tidy_all=no quick=no
for option in "$@"; do
  case "$option" in
    --sanitize) sanitize=yes ;;
    --tidy) tidy_all=yes ;;
    --quick) quick=yes ;;
    *) echo "usage: scripts/check.sh [--sanitize] [--tidy] [--quick]" >&2; exit 2 ;;
  esac
done

jobs=$(nproc)
failed=0
summary=()
left_out=()

# step NAME COMMAND...: runs it, notes how it ended, and goes on.
step() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '\n== %s\n' "$name"
  "$@" || status=$?
  if [ "$status" -eq 0 ]; then
    summary+=("$(printf 'ok      %4d s  %s' $((SECONDS - start)) "$name")")
  else
    summary+=("$(printf 'FAILED  %4d s  %s' $((SECONDS - start)) "$name")")
    failed=1
  fi
  return "$status"
}

build() {
  cmake --preset "$1" && cmake --build --preset "$1" -- -j "$jobs" -k 0
}

tests() {
  ctest --test-dir "$1" -j "$jobs" --output-on-failure --no-tests=error "${@:2}"
}

format() {
  python3 scripts/tidy.py --list .h .cpp .cu .cuh | xargs clang-format --dry-run -Werror
}

# The folders whose headers are light: about half a minute on two cores, not ten times that.
clang_tidy() {
  local pattern='^(base|scheduler|transport/collective|model/config)/'
  [ "$tidy_all" = no ] || pattern=.
  python3 scripts/tidy.py --list .cpp | grep -E "$pattern" | grep -v '_test\.cpp$' |
    xargs -n 1 -P "$jobs" clang-tidy --quiet -p build 2>&1 |
    { grep -vE '^[0-9]+ warnings? (generated|treated)|^$' || true; }
}

sanitizers() {
  local supp=$PWD/scripts/sanitizers aslr=()
  # The thread sanitizer's fixed shadow does not fit every randomised address space.
  if setarch "$(uname -m)" -R true 2>/dev/null; then aslr=(setarch "$(uname -m)" -R); fi
  export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
  export LSAN_OPTIONS=suppressions=$supp/lsan.supp:print_suppressions=0
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
  export TSAN_OPTIONS=suppressions=$supp/tsan.supp:halt_on_error=1:second_deadlock_stack=1
  # End-to-end and oracle tests judge numbers and whole processes, many times slower here.
  local slow='^(e2e|oracle)\.|^tidy|^RoundGolden'
  step "build for the address and undefined-behaviour sanitizers" build asan &&
    step "tests under them" tests build/asan -E "$slow"
  step "build for the thread sanitizer" build tsan &&
    step "tests under it" "${aslr[@]}" ctest --test-dir build/tsan -j "$jobs" \
      --output-on-failure --no-tests=error -E "$slow"
  left_out+=("end-to-end and oracle tests under sanitizers")
}

report() {
  printf '\n== summary, %d s\n' "$SECONDS"
  printf '%s\n' "${summary[@]}"
  if [ "${#left_out[@]}" -gt 0 ]; then printf 'left out: %s\n' "${left_out[@]}"; fi
  if [ "$failed" -eq 0 ]; then echo "check: passed"; else echo "check: FAILED"; fi
  exit "$failed"
}

step "packages" bash scripts/setup.sh || report
step "style: clang-format" format
step "style: tidy" python3 scripts/tidy.py
if step "build" build release; then
  selection=()
  if [ "$quick" = yes ]; then
    selection=(-E '^e2e\.')
    left_out+=("end-to-end tests (--quick)")
  fi
  step "tests" tests build "${selection[@]}"
fi
if [ "$quick" = yes ]; then
  left_out+=("headers alone, clang-tidy (--quick)")
else
  step "headers alone" python3 scripts/tidy.py --headers
  step "clang-tidy" clang_tidy
  [ "$tidy_all" = yes ] || left_out+=("clang-tidy outside its quick folders (--tidy)")
fi
if [ "$sanitize" = yes ]; then
  sanitizers
else
  left_out+=("sanitizers (--sanitize)")
fi
if ! command -v nvcc >/dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  left_out+=("CUDA: nvcc is not installed, so nothing of it was compiled")
elif ! nvidia-smi >/dev/null 2>&1; then
  left_out+=("CUDA: compiled for sm_90a and sm_120; its tests were skipped, there is no GPU")
fi
report
