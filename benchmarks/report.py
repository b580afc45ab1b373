"""What the results of a benchmark look like: on the terminal, in a Markdown page, as a picture."""

import harness


def seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.3g} {unit}" if value * factor < 1000 else f"{value * factor:.0f} {unit}"
    return f"{value * 1e9:.0f} ns"


def rate(row):
    """Operations per second where arithmetic is what a case is about, else bytes."""
    ours = row["ours"]["median"]
    if row["family"].startswith("element-wise"):
        return f"{row['bytes'] / ours / 1e9:.1f} GB/s"
    return f"{row['operations'] / ours / 1e9:.1f} GFLOP/s"


def spread(side):
    """Half the distance of the quartiles, of the median."""
    return f"{(side['high'] - side['low']) / 2 / side['median']:.0%}"


def alone_of(rows):
    return {(r["name"], r["isa"]): r for r in rows if r["threads"] == 1}


COLUMNS = ("case", "narrows", "±", "torch", "±", "ratio", "goal", "", "rate", "of copy", "1 thread", "")


def cells(row, alone):
    found = {m: (least, value, met) for m, least, value, met in harness.verdicts(row, alone)}
    goal, ratio, met = found.get("ratio", (None, harness.reached(row, "ratio"), None))
    copied, scaling = harness.reached(row, "copy"), harness.reached(row, "scaling", alone)
    wrong = " (off)" if row["errors"]["theirs"] > 1 else ""

    def mark(measure):
        return "" if measure not in found else " met" if found[measure][2] else " MISSED"

    slow = " slower with threads" if alone and alone is not row and harness.slower_with_threads(row, alone) else ""
    return (row["name"], seconds(row["ours"]["median"]), spread(row["ours"]), seconds(row["theirs"]["median"]) + wrong, spread(row["theirs"]),
            f"{ratio:.2f}", f"{goal:.1f}" if goal is not None else "", mark("ratio").strip(), rate(row),
            f"{copied:.2f}{mark('copy')}" if copied is not None else "", f"{scaling:.2f} x{mark('scaling')}" if scaling is not None else "", slow.strip())  # fmt: skip


def live(row, most):
    """One row as it comes; 1 if it failed."""
    if "failed" in row:
        print(f"  {row['name']:46} {row['threads']} threads, {row['isa']}: {row['failed']}", flush=True)
        return 1
    ratio = harness.reached(row, "ratio")
    verdict = " ".join(f"{m} {v:.2f} of {least:g} {'met' if met else 'MISSED'}" for m, least, v, met in harness.verdicts(row))
    print(f"  {row['name']:46} {row['isa']:7} {row['threads']}t  narrows {seconds(row['ours']['median']):>8} {spread(row['ours']):>4}  "
          f"torch {seconds(row['theirs']['median']):>8} {spread(row['theirs']):>4}  {ratio:5.2f} x  {rate(row):>14}  {verdict}", flush=True)  # fmt: skip
    return 0


def judged(results):
    """The rows that goals are about: of each case and instruction set the one on most threads; with the one on a single thread."""
    alone, best = alone_of(results["rows"]), {}
    for row in results["rows"]:
        k = row["name"], row["isa"]
        if k not in best or row["threads"] > best[k]["threads"]:
            best[k] = row
    return [(row, alone.get(k)) for k, row in best.items()]


def sections(results):
    found = {}
    for row, alone in judged(results):
        found.setdefault((row["family"], row["isa"], row["threads"]), []).append((row, alone))
    return found


def arch(results, isa):
    ours, theirs = results["machine"].get("arch", {}).get(isa, [isa, isa])
    return f"narrows {ours}, torch {theirs}"


def table(results):
    lines = []
    for (family, isa, threads), rows in sections(results).items():
        lines += ["", f"{family}: {threads} threads, {arch(results, isa)}"]
        body = [cells(*pair) for pair in rows]
        widths = [max(len(c) for c in column) for column in zip(COLUMNS, *body, strict=True)]
        for line in (COLUMNS, *body):
            lines.append(
                "  "
                + "  ".join(
                    c.ljust(w) if i in (0, 7, 11) else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
                ).rstrip()
            )
    return "\n".join(lines)


def summary(results):
    pairs = judged(results)
    goals = [(row, *v) for row, alone in pairs for v in harness.verdicts(row, alone)]
    slower = [row for row, alone in pairs if alone and alone is not row and harness.slower_with_threads(row, alone)]
    lines = ["", f"{len(pairs)} rows, {len(goals)} goals measured: {sum(g[-1] for g in goals)} met, {sum(not g[-1] for g in goals)} missed; "
             f"{len(slower)} rows slower with threads than without"]  # fmt: skip
    return "\n".join(lines)
