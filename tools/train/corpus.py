"""Collects the training text: CPython's standard library and questions from its docstrings.

usage: corpus.py STDLIB_DIR OUT_DIR
writes OUT_DIR/{train,heldout}.jsonl, one {"kind", "text"} a line; answers are the docstrings.
Licence of the text: PSF-2.0 (CPython). Every 50th file is held out.
"""

import ast, hashlib, json, pathlib, sys

SKIP_DIRS = {
    "site-packages",
    "__pycache__",
    "lib-dynload",
    "encodings",
    "config-3.11-x86_64-linux-gnu",
    "ensurepip",
    "bad_coding",
}


def python_files(root):
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        if SKIP_DIRS & set(path.relative_to(root).parts) or path.stat().st_size > 400_000:
            continue
        yield path


def chat_samples(module, tree, source):
    """(question, answer) pairs from the docstrings and short functions of one module."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        doc = ast.get_docstring(node)
        if not doc or len(doc) > 700 or len(doc) < 20:
            continue
        kind = "class" if isinstance(node, ast.ClassDef) else "function"
        yield f"What does the {kind} {node.name} in {module} do?", doc
        code = ast.get_source_segment(source, node)
        if kind == "function" and code and len(code) < 1500:
            first = doc.strip().splitlines()[0]
            yield f"Write a Python function {node.name}: {first}", code


def main(root, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    files = {"train": open(out / "train.jsonl", "w"), "heldout": open(out / "heldout.jsonl", "w")}
    count = {"train": 0, "heldout": 0}
    for path in python_files(root):
        try:
            source = path.read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (UnicodeDecodeError, SyntaxError, ValueError):
            continue
        name = str(path.relative_to(root))
        split = (
            "heldout" if int(hashlib.sha256(name.encode()).hexdigest(), 16) % 50 == 0 else "train"
        )
        files[split].write(json.dumps({"kind": "code", "text": source}) + "\n")
        count[split] += len(source)
        module = name[:-3].replace("/", ".").removesuffix(".__init__")
        for question, answer in chat_samples(module, tree, source):
            sample = {"kind": "chat", "text": json.dumps([question, answer])}
            files[split].write(json.dumps(sample) + "\n")
            count[split] += len(question) + len(answer)
    print(count)


if __name__ == "__main__":
    main(*sys.argv[1:])
