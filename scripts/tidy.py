#!/usr/bin/env python3
"""The rules of style that a program can judge; CONTRIBUTING.md says what they are for.

  scripts/tidy.py                    judge every tracked file
  scripts/tidy.py --build build      also: each .cpp belongs to a target of that build folder
  scripts/tidy.py --headers          only: each header compiles alone
  scripts/tidy.py --list .h .cpp     only: print the tracked files with these endings
  scripts/tidy.py --self-test        plant one bad file for each rule and see that it is caught
"""
import argparse
import ast
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
KERNEL_FUNCTION_LINES_MAX = 200
FILE_LINES_MAX = 600

# Files that are longer than FILE_LINES_MAX, and how long. An entry may shrink or go, never grow.
LONG_FILES = {}
# Tests that may be skipped on some machine: "file": "reason".
SKIPPING_TESTS = {
    "kernels/common/cuda/testing.h": "there is no GPU",
    "tests/oracle/cuda_checkpoints_test.cpp": "there is no GPU",
    "transport/collective/nccl_collective_test.cpp": "there is no GPU",
    "worker/cuda/engine_cuda_test.cpp": "there is no GPU",
}

CPP = (".h", ".cpp", ".cu", ".cuh")
CODE = CPP + (".py", ".sh")
TEXT = CODE + (".md", ".yaml", ".yml", ".cmake", ".txt", ".json", ".html", ".js", ".css")
DATA = ("models/", "tests/oracle/data/", "bench/results/", "tests/fuzz/corpus/", ".gpu/")

# What each folder may include, besides itself. The link lists of CMake say the same of libraries;
# this also catches a header that is used without linking. Folders that are not named may use all.
COLLECTIVE = "transport/collective/collective.h"
DEVICE_COLLECTIVE = "transport/collective/device_collective.h"
INCLUDES = {
    "base": [],
    "kernels": ["base/"],
    "transport": ["base/"],
    "scheduler": ["base/", "transport/messages/"],  # messages: plain structs
    "model": ["base/", "kernels/", COLLECTIVE, DEVICE_COLLECTIVE],
    "coordinator": ["base/", "scheduler/", "transport/"],
    "worker": ["base/", "model/", "kernels/", "transport/"],
    "gateway": ["base/", "transport/", "model/tokenizer/", "model/chat_template/"],
    "tools": ["base/", "scheduler/", "transport/", "model/", "kernels/"],
}
# A test may set up ranks, whatever its folder.
TEST_INCLUDES = ["base/", "transport/collective/"]

# Places of one machine or one working copy: the project speaks of itself alone.
FOREIGN_PATHS = re.compile(r"/wor" r"k/|\.\./shar" r"ed|/roo" r"t/|/hom" r"e/[a-z]")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
OPEN_END = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b(?!\(#\d+\))")
SKIP = re.compile(r"\bDISABLED" r"_|\bGTEST" r"_SKIP|unittest\.sk" r"ip|pytest\.mark\.sk" r"ip")
DEAD_CPP = re.compile(r"^\s*//\s*([\w:<>*&, ]+ )?"
                      r"([\w.:>\-]+\(.*\)|[\w.>\-\[\]]+ [-+*/|&]?= .*);\s*$|^\s*#\s*if\s+0\b")
DEAD_PY = re.compile(r"^\s*#\s*(import \w+|from \w+ import|return\b.*\)$|print\(|def \w+\()")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
SCOPE = re.compile(r"^\s*(template\s*<.*>\s*)?(inline\s+)?"
                   r"(namespace|class|struct|union|enum|extern)\b[^()]*(alignas\(.*?\))?[^()]*$",
                   re.S)
CONSTRUCTOR = re.compile(r"\)\s*(noexcept\s*)?:(?!:)")


class Source:
    """One file: where it stands and what it says."""

    def __init__(self, root, name):
        self.name = name
        self.suffix = pathlib.PurePath(name).suffix
        self.folder = name.split("/")[0] if "/" in name else ""
        raw = (root / name).read_bytes()
        try:
            self.text = raw.decode("utf-8")
        except UnicodeDecodeError:
            self.text = None
        self.lines = self.text.split("\n") if self.text is not None else []

    def is_test(self):
        return bool(re.search(r"_test\.|_for_test\.|/testing|_testing\.|_bench\.|/tests?/|_main\.",
                              self.name))


def tracked_files(root):
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.decode().split("\0")
    else:  # an unpacked archive
        names = [str(p.relative_to(root)) for p in root.rglob("*") if "build" not in p.parts]
    return sorted(n for n in names if n and (root / n).is_file() and not n.startswith(DATA))


# --- rules: each yields (line number, complaint) --------------------------------------------------

def rule_characters(source):
    for number, line in enumerate(source.lines, 1):
        if CONTROL.search(line):
            yield number, "control character"
        if line != line.rstrip():
            yield number, "trailing whitespace"
        if source.suffix in CODE and "\t" in line:
            yield number, "tab"
        if source.suffix in CODE and len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns, at most {COLUMNS_MAX}"
    if source.text and not source.text.endswith("\n"):
        yield len(source.lines), "no newline at the end of the file"


def rule_file_length(source):
    if source.suffix not in CODE:
        return
    length = len(source.lines) - 1
    allowed = LONG_FILES.get(source.name, FILE_LINES_MAX)
    if length > allowed:
        yield 1, f"{length} lines, at most {allowed}"
    elif source.name in LONG_FILES and length < allowed:
        yield 1, f"shrank to {length} lines: lower or drop its entry in LONG_FILES"


def rule_words(source):
    for number, line in enumerate(source.lines, 1):
        if FOREIGN_PATHS.search(line):
            yield number, "a path of one machine"
        if source.suffix in CODE and OPEN_END.search(line):
            yield number, "an open end without an issue: write it as NAME(#number)"
        if SKIP.search(line) and source.suffix in CODE and source.name not in SKIPPING_TESTS:
            yield number, "a disabled or skipped test: SKIPPING_TESTS lists those with a reason"


def rule_dead_code(source):
    pattern = DEAD_CPP if source.suffix in (".cpp", ".cu") else DEAD_PY
    if source.suffix not in (".cpp", ".cu", ".py"):
        return
    for number, line in enumerate(source.lines, 1):
        if pattern.search(line):
            yield number, "code that is commented out"


def rule_includes(source):
    if source.suffix not in CPP or source.folder not in INCLUDES:
        return
    allowed = [source.folder + "/"] + INCLUDES[source.folder]
    if source.is_test():
        allowed += TEST_INCLUDES
    for match in INCLUDE.finditer(source.text):
        if not match.group(1).startswith(tuple(allowed)):
            line = source.text.count("\n", 0, match.start()) + 1
            yield line, f'{source.folder}/ may not include "{match.group(1)}"'


def rule_pragma_once(source):
    once = source.suffix == ".h" and not source.name.endswith("-inl.h")
    if once and source.lines[0] != "#pragma once":
        yield 1, "a header begins with #pragma once"


def blank(match):
    """Keeps the lines and the length of what it hides."""
    return re.sub(r"[^\n]", " ", match.group(0))


def strip_cpp(text):
    """The text without comments, literals and preprocessor lines; positions stay the same."""
    pattern = (r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
               r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*")
    return re.sub(pattern, blank, text, flags=re.S | re.M)


def cpp_functions(text):
    """(first line, last line) of each function's definition; lambdas belong to their function."""
    text = strip_cpp(text)
    stack = []  # [kind, first line, head outside]
    head_start, line = 0, 1
    for position, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == "{":
            head = text[head_start:position]
            stripped = head.strip()
            first = line - head.lstrip().count("\n")
            before = stripped[-1:] or "{"
            inside = any(frame[0] == "function" for frame in stack)
            if inside:
                kind = "inner"
            elif SCOPE.search(head):
                kind = "scope"
            elif "(" in head and not (CONSTRUCTOR.search(head) and re.match(r"[\w>]", before)) \
                    and not re.search(r"(^|[^=!<>])=\s*[\w:<>, ]*$", stripped):
                kind = "function"
            else:
                kind = "braces"
            stack.append((kind, first, head_start))
            head_start = position + 1
        elif char == "}" and stack:
            kind, first, outer_head = stack.pop()
            if kind == "function":
                yield first, line
            head_start = outer_head if kind == "braces" else position + 1
        elif char == ";":
            head_start = position + 1


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno


def rule_function_length(source):
    if source.suffix in CPP:
        functions = cpp_functions(source.text)
    elif source.suffix == ".py":
        functions = python_functions(source.text)
    else:
        return
    limit = KERNEL_FUNCTION_LINES_MAX if source.folder == "kernels" else FUNCTION_LINES_MAX
    for first, last in functions:
        if last - first + 1 > limit:
            yield first, f"a function of {last - first + 1} lines, at most {limit}"


RULES = [rule_characters, rule_file_length, rule_words, rule_dead_code, rule_includes,
         rule_pragma_once, rule_function_length]


# --- the whole tree -------------------------------------------------------------------------------

def judge(root, names, rules=None):
    complaints = []
    for name in names:
        if pathlib.PurePath(name).suffix not in TEXT:
            continue
        source = Source(root, name)
        if source.text is None:
            complaints.append(f"{name}:1: not UTF-8")
            continue
        for rule in rules or RULES:
            complaints += [f"{name}:{line}: {what}" for line, what in rule(source)]
    return complaints


def stale_entries(names):
    known = set(names)
    return [f"{name}:1: listed in tidy.py, but not there"
            for name in list(LONG_FILES) + list(SKIPPING_TESTS) if name not in known]


def needs_cuda(name):
    return any(word in name for word in ("cuda", "nccl", "gpu_ranks", "bench/rank_of",
                                         "device_collective", "library_gemm", "packed_linear"))


def files_outside_targets(root, names, build):
    """A .cpp that no target compiles is dead, or a test that never runs."""
    commands = json.loads((build / "compile_commands.json").read_text())
    has_cuda = "nvcc" in " ".join(c["command"] for c in commands)
    compiled = {os.path.realpath(os.path.join(c["directory"], c["file"])) for c in commands}
    return [f"{name}:1: no target compiles it" for name in names
            if name.endswith(".cpp") and os.path.realpath(root / name) not in compiled
            and not name.startswith("tests/fuzz/")  # clang's, with -DCOPSE_FUZZ=ON
            and (has_cuda or not needs_cuda(name))]


def compile_header(root, folder, name):
    unit = folder / (name.replace("/", "__") + ".cpp")
    unit.write_text(f'#include "{name}"\n')
    launcher = [shutil.which("ccache")] if shutil.which("ccache") else []
    command = launcher + ["g++", "-std=c++20", "-O0", "-Wall", "-Wextra", "-I", str(root),
                          "-isystem", "/usr/local/cuda/include",
                          "-c", str(unit), "-o", str(unit) + ".o"]
    environment = dict(os.environ, CCACHE_NOHASHDIR="1")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return name, done.returncode, done.stderr


def headers_alone(root, names):
    # -inl.h files are included once per vector target, by the file they belong to.
    has_cuda = shutil.which("nvcc") or os.path.exists("/usr/local/cuda/bin/nvcc")
    headers = [n for n in names if n.endswith(".h") and not n.endswith("-inl.h")
               and (has_cuda or not needs_cuda(n))]
    complaints = []
    folder = root / "build" / "headers"
    folder.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = [pool.submit(compile_header, root, folder, header) for header in headers]
        for job in jobs:
            name, status, errors = job.result()
            if status != 0:
                complaints.append(f"{name}:1: does not compile alone\n{errors.rstrip()}")
    return complaints


# --- the canary -----------------------------------------------------------------------------------

def planted():
    """One bad file for each complaint: name, text, what must be said of it."""
    long_function = "void f() {\n" + "  g();\n" * 70 + "}\n"
    in_class = "struct S {\n  S() : a_{1}, b_(2) {\n" + "    g();\n" * 70 + "  }\n};\n"
    return [
        ("base/wide.cpp", "int a;" + " " * 95 + "int b;\n", "columns"),
        ("base/space.cpp", "int a; \n", "trailing whitespace"),
        ("base/control.cpp", "int a;\x07\n", "control character"),
        ("base/tab.py", "if a:\n\tb()\n", "tab"),
        ("base/end.cpp", "int a;", "no newline"),
        ("base/long.cpp", "int a;\n" * 601, "601 lines"),
        ("base/function.cpp", long_function, "a function of 72 lines"),
        ("base/member.h", "#pragma once\n" + in_class, "a function of 72 lines"),
        ("base/test.cpp", "TEST(A, B) {\n" + "  {\n  }\n" * 36 + "}\n", "a function of 74 lines"),
        ("base/function.py", "def f():\n" + "    g()\n" * 70, "a function of 71 lines"),
        ("kernels/x/long.cpp", long_function.replace("g();\n", "g();\n" * 3), "a function of 212"),
        ("base/open.cpp", "// TO" + "DO: finish\n", "open end"),
        ("base/off_test.cpp", "TEST(A, DISABLED" + "_B) {}\n", "disabled or skipped"),
        ("base/skip_test.cpp", "TEST(A, B) {\n  GTEST" + "_SKIP();\n}\n", "disabled or skipped"),
        ("base/dead.cpp", "void f() {\n  // g(1, 2);\n}\n", "commented out"),
        ("base/dead2.cpp", "// int a = b + 1;\n", "commented out"),
        ("base/path.md", "see /wor" + "k/notes.md\n", "path of one machine"),
        ("base/once.h", "int a;\n", "#pragma once"),
        ("scheduler/a.h", '#pragma once\n#include "transport/link.h"\n', "may not include"),
        ("model/a_test.cpp", '#include "worker/worker.h"\n', "may not include"),
        ("kernels/a.cpp", '#include "model/config/model_config.h"\n', "may not include"),
    ]


GOOD = ("model/good_test.cpp", """\
// Why this is here (as an example, not code);
// it holds because of f(x).
#include "base/result.h"
#include "kernels/linear/linear.h"
#include "transport/collective/local.h"

namespace copse {
constexpr int table[] = {1, 2};
struct Pair {
  Pair() : a_{1}, b_{f(2)} {}
  int a_;
  int b_;
};
const char* text = "} { // not code;";
TEST(Good, IsLeftAlone) { EXPECT_EQ(Pair().a_, '{' - '{' + 1); }
}  // namespace copse
""")


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text, expected in planted() + [GOOD + (None,)]:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            said = judge(root, [name])
            if expected is None and said:
                failures.append(f"a good file was refused: {said}")
            if expected is not None and not any(expected in one for one in said):
                failures.append(f'{name}: "{expected}" was not said, but {said}')
    print("\n".join(failures) or f"tidy: all {len(planted())} planted files were caught")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="Judges the style of copse.")
    parser.add_argument("--build", type=pathlib.Path, help="a configured build folder")
    parser.add_argument("--headers", action="store_true", help="only compile each header alone")
    parser.add_argument("--list", nargs="+", metavar="SUFFIX", help="only print such files")
    parser.add_argument("--self-test", action="store_true", help="see that bad files are caught")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    root = pathlib.Path(__file__).resolve().parent.parent
    names = tracked_files(root)
    if options.list:
        print("\n".join(n for n in names if n.endswith(tuple(options.list))), flush=True)
        return 0
    if options.headers:
        complaints = headers_alone(root, names)
        names = [n for n in names if n.endswith(".h")]
    else:
        complaints = judge(root, names) + stale_entries(names)
        if options.build:
            complaints += files_outside_targets(root, names, options.build)
    print("\n".join(complaints) or f"tidy: {len(names)} files are in order")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
