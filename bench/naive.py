#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The naive sandbox, as a baseline: copy the tree, change the copy, compare every file, back the
whole original up, copy the changes over. Not durable, not atomic. Prints milliseconds per step."""
import filecmp, json, os, shutil, sys, time


def files(root):
    out = set()
    for d, _, names in os.walk(root):
        out.update(os.path.relpath(os.path.join(d, n), root) for n in names)
    return out


def main():
    original, scratch, mutate = sys.argv[1:4]
    box, backup = os.path.join(scratch, "box"), os.path.join(scratch, "backup")
    ms, t = {}, time.perf_counter()

    def lap(name):
        nonlocal t
        now = time.perf_counter()
        ms[name] = (now - t) * 1e3
        t = time.perf_counter()

    shutil.copytree(original, box, symlinks=True)
    lap("create")
    os.system(f"cd '{box}' && sh '{mutate}'")
    lap("mutate")
    a, b = files(original), files(box)
    changed = [p for p in a & b if not filecmp.cmp(os.path.join(original, p), os.path.join(box, p), False)]
    lap("diff")
    shutil.copytree(original, backup, symlinks=True)
    for p in changed + sorted(b - a):
        shutil.copy2(os.path.join(box, p), os.path.join(original, p))
    for p in a - b:
        os.unlink(os.path.join(original, p))
    lap("commit")
    os.rename(original, original + ".old")
    os.rename(backup, original)
    lap("undo")
    shutil.rmtree(original + ".old")
    shutil.rmtree(box)
    lap("clean")
    print(json.dumps(ms))


main()
