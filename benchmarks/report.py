# SPDX-License-Identifier: Apache-2.0
"""What the results of a benchmark look like: a table on the terminal, a block of a Markdown page, a picture.

Goals are about the rows on most threads; those on one thread say how far threads help."""

import json
import pathlib
import statistics

import harness

BEGIN, END = "<!-- bench: written by ./run bench -- --write -->", "<!-- bench: end -->"


# ---- a row ----


def seconds(value):
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6), ("ns", 1e9)):
        if value * factor >= 1 or unit == "ns":
            return f"{value * factor:.0f} {unit}" if value * factor >= 100 else f"{value * factor:.3g} {unit}"


def rate(row):
    """Of arithmetic where a case is about that, else of bytes."""
    what, unit = ("bytes", "GB/s") if row["family"].startswith("element-wise") else ("operations", "GFLOP/s")
    return f"{row[what] / row['ours']['median'] / 1e9:.1f} {unit}"


def spread(side):
    """Half the distance between the quartiles, as a part of the median."""
    return f"{(side['high'] - side['low']) / 2 / side['median']:.0%}"


def slow(row, alone):
    return bool(alone) and alone is not row and harness.slower_with_threads(row, alone)


def verdict(row, alone=None):
    """ "met", or what was missed; nothing where there is no goal."""
    found = harness.verdicts(row, alone)
    missed = [f"{measure} {value:.3g} of {least:g}" for measure, least, value, met in found if not met]
    if slow(row, alone):
        missed.append("slower with threads")
    return ("MISSED " + ", ".join(missed) if missed else "met" if found else "") + (" (disturbed)" if disturbed(row, alone) else "")


def star(row):
    """Of a row whose result of theirs is further off than what is allowed to ours."""
    return "*" if row["errors"]["theirs"] > 1 else ""


COLUMNS = ("case", "narrows", "±", "torch", "±", "ratio", "goal", "rate", "of copy", "threads", "verdict")


def cells(row, alone=None):
    goal = dict(row["goals"]).get("ratio")
    of_copy, scaling = harness.reached(row, "copy"), harness.reached(row, "scaling", alone)
    return (
        row["name"],
        seconds(row["ours"]["median"]),
        spread(row["ours"]),
        seconds(row["theirs"]["median"]) + star(row),
        spread(row["theirs"]),
        f"{harness.reached(row, 'ratio'):.2f} x",
        f"{goal:g}" if goal is not None else "",
        rate(row),
        f"{of_copy:.2f}" if of_copy is not None else "",
        f"{scaling:.2f} x" if scaling is not None else "",
        verdict(row, alone),
    )


# ---- all rows ----


def judged(results):
    """[(row, the same on one thread or None)]: of each case and tier the row on most threads."""
    alone, most = {}, {}
    for row in results["rows"]:
        k = row["name"], row["isa"]
        if row["threads"] == 1:
            alone[k] = row
        if k not in most or row["threads"] > most[k]["threads"]:
            most[k] = row
    return [(row, alone.get(k)) for k, row in most.items()]


def sections(results):
    """{(family, tier, threads): rows}"""
    found = {}
    for row, alone in judged(results):
        found.setdefault((row["family"], row["isa"], row["threads"]), []).append((row, alone))
    return found


def tier(results, isa):
    ours, theirs = results["machine"].get("arch", {}).get(isa, [isa, isa])
    return f"narrows {ours}, torch {theirs}"


def counts(pairs):
    """How many goals were met, how many measured."""
    found = [met for row, alone in pairs for *_, met in harness.verdicts(row, alone)]
    return sum(found), len(found)


def disturbed(row, alone=None):
    """Others were busy while it, or the row on one thread that it is compared with, was measured."""
    return max(row["others"], alone["others"] if alone else 0) >= harness.DISTURBED


def headline(results):
    pairs = judged(results)
    met, goals = counts(pairs)
    text = f"{len(pairs)} rows; {met} of {goals} goals met; slower with threads than without: {sum(slow(*p) for p in pairs)}"
    busy = sum(disturbed(*p) for p in pairs)
    return text + (f"; other processes disturbed {busy} rows" if busy else "")


def missed(results):
    return [(row, alone) for row, alone in judged(results) if verdict(row, alone).startswith("MISSED")]


# ---- on the terminal ----


def aligned(lines):
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    ends = (0, len(widths) - 1)
    return [
        "  "
        + "  ".join(c.ljust(w) if i in ends else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]


def table(results):
    lines = []
    for (family, isa, threads), pairs in sections(results).items():
        lines += ["", f"{family}   {threads} thread{'s' * (threads > 1)}, {tier(results, isa)}"]
        lines += aligned([COLUMNS, *(cells(*pair) for pair in pairs)])
    if any(map(star, results["rows"])):
        lines += ["", "  * its result is further off than what is allowed to ours"]
    return "\n".join([*lines, "", headline(results)])


def live(row):
    """One line for a row that has just been measured."""
    where = f"{row['isa']:8} {row['threads']} thread{'s' * (row['threads'] > 1)}"
    if "failed" in row:
        return f"{row['name']:48} {where:18} FAILED  {row['failed']}"
    _, ours, _, theirs, _, ratio, _, fast, of_copy, _, judgement = cells(row)
    return f"{row['name']:48} {where:18} {ours:>8}  torch {theirs:>8}  {ratio:>8}  {fast:>14} {of_copy:>5}  {judgement}".rstrip()


# ---- in a page ----


def markdown_table(lines):
    head, *body = lines
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *body))


def bold_if_missed(row, alone, measure, suffix=""):
    """What was reached of a measure; nothing if it was not measured."""
    value = harness.reached(row, measure, alone)
    missed = any(m == measure and not met for m, *_, met in harness.verdicts(row, alone))
    text = "" if value is None else f"{value:.2f}{suffix}"
    return f"**{text}**" if missed else text


def grid(pairs):
    """Cases that share a line, by their columns: the ratio, and after a slash what else they have a goal for."""
    columns = list(dict.fromkeys(row["column"] for row, _ in pairs))
    lines = {}
    for row, alone in pairs:
        measures = ["ratio", *(m for m, _ in row["goals"] if m != "ratio")]
        found = [text for m in measures if (text := bold_if_missed(row, alone, m))]
        found[0] += star(row)
        lines.setdefault(row["line"], {})[row["column"]] = " / ".join(found)
    return markdown_table([["", *columns], *([name, *(found.get(c, "") for c in columns)] for name, found in lines.items())])


def listing(pairs):
    body = []
    for row, alone in pairs:
        name, ours, _, theirs, _, _, goal, fast, *_ = cells(row, alone)
        body.append(
            [name, ours, theirs, bold_if_missed(row, alone, "ratio", " x"), goal, fast, bold_if_missed(row, alone, "scaling", " x")]
        )
    return markdown_table([["", "narrows", "torch", "ratio", "goal", "rate", "gain from threads"], *body])


def tiers(results):
    """For each family and tier: goals met and the median ratio."""
    found = sections(results)
    isas = list(dict.fromkeys(isa for _, isa, _ in found))
    lines = {}
    for (family, isa, _), pairs in found.items():
        ratios = [harness.reached(row, "ratio") for row, _ in pairs]
        met, goals = counts(pairs)
        lines.setdefault(family, {})[isa] = f"{statistics.median(ratios):.2f} x, {met} of {goals}"
    return markdown_table(
        [["median ratio, goals met", *isas], *([name, *(f.get(i, "") for i in isas)] for name, f in lines.items())]
    )


def misses(results):
    """Every row that misses, with how far it is."""
    rows = [
        [row["family"], row["isa"], row["name"], verdict(row, alone).removeprefix("MISSED ").replace("ratio ", "")]
        for row, alone in missed(results)
    ]
    return markdown_table([["family", "instruction set", "row", "what was reached of the goal"], *rows]).replace("---:", "---")


def main_tier(results):
    isas = [row["isa"] for row in results["rows"]]
    return "native" if "native" in isas else isas[0]


def block(results, picture):
    machine, main = results["machine"], main_tier(results)
    of_main = {**results, "rows": [row for row in results["rows"] if row["isa"] == main]}
    words = (
        "every row beside its goal" if not sizes_of(of_main["rows"]) else "What add reaches at each size; every row beside its goal"
    )
    commits = sorted({row["commit"] for row in results["rows"] if row.get("commit")})
    parts = [
        f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}; torch {machine['torch']}; {tier(results, main)}; "
        f"median spread ± {statistics.median(float(spread(row['ours'])[:-1]) for row in results['rows']):.0f} %"
        + (f"; measured at {', '.join(commits)}." if commits else "."),
        f"**{headline(of_main)}.**",
        f"![{words}]({picture})",
    ]
    for (family, isa, threads), pairs in sections(results).items():
        if isa == main:
            parts += [f"### {family}, {threads} threads", grid(pairs) if all(row["line"] for row, _ in pairs) else listing(pairs)]
    if len({row["isa"] for row in results["rows"]}) > 1:
        parts += ["### Every instruction set", "Each beside the same tier of torch.", tiers(results)]
    if missed(results):
        parts += ["### Every miss", misses(results)]
    return "\n\n".join(parts)


def between_markers(text, new):
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the markers '{BEGIN}' and '{END}'")
    return f"{head}{BEGIN}\n\n{new}\n\n{END}{tail}"


def write(results, page):
    """The block of the page, which is made if there is none, and beside it the picture and its data. The site draws it again."""
    page = pathlib.Path(page)
    picture = page.with_suffix(".svg")
    text = between_markers(page.read_text() if page.exists() else f"{BEGIN}\n{END}\n", block(results, picture.name))
    data = picture_of(results)
    page.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    draw(data, picture)
    page.write_text(text)


# ---- the picture ----

INK, OURS, THEIRS, MISSED = "#24292f", "#1a7f64", "#9a6700", "#cf222e"


def sizes_of(rows):
    """The rows of the first picture."""
    return [row for row in rows if row["line"] == "add f32" and row["family"].endswith("contiguous")]


def significant(value):
    return float(f"{value:.4g}")


def picture_of(results):
    """What the picture shows: GB/s by size; and of each family the ratios, divided by their goals."""
    pairs = [(row, alone) for row, alone in judged(results) if row["isa"] == main_tier(results)]
    sizes = []
    for row in sorted(sizes_of(row for row, _ in pairs), key=lambda row: row["operations"]):
        rates = {
            name: {q: significant(row["bytes"] / row[side][q] / 1e9) for q in ("low", "median", "high")}
            for name, side in (("narrows", "ours"), ("torch", "theirs"))
        }
        copy = {"copy": significant(row["copy_rate"] / 1e9)} if "copy_rate" in row else {}
        sizes.append({"elements": row["operations"], "label": row["column"], **rates, **copy})
    goals = {row["family"]: [] for row, _ in pairs}
    for row, alone in pairs:
        reached = [v / least for m, least, v, _ in harness.verdicts(row, alone) if m == "ratio"]
        goals[row["family"]] += map(significant, reached)
    return {"sizes": sizes, "goals": goals}


def draw(data, path):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "narrows", "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False, "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK})  # fmt: skip
    widths = (2, 3) if data["sizes"] else (1,)
    figure, axes = plt.subplots(1, len(widths), figsize=(10.5, 4), width_ratios=widths, squeeze=False, layout="constrained")
    if data["sizes"]:
        draw_sizes(axes[0][0], data["sizes"])
    draw_goals(axes[0][-1], data["goals"])
    figure.savefig(path, metadata={"Date": None, "Creator": "benchmarks/report.py"})
    plt.close(figure)


def draw_sizes(axes, rows):
    sizes = [row["elements"] for row in rows]
    for name, color in (("torch", THEIRS), ("narrows", OURS)):
        low, median, high = ([row[name][q] for row in rows] for q in ("low", "median", "high"))
        axes.fill_between(sizes, high, low, color=color, alpha=0.15, linewidth=0)
        axes.plot(sizes, median, color=color, marker="o", markersize=3.5, label=name)
    copies = [(row["elements"], row["copy"]) for row in rows if "copy" in row]
    if copies:
        axes.plot(*zip(*copies, strict=True), color=INK, linestyle=(0, (2, 2)), label="a copy of memory")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [row["label"] for row in rows], rotation=45)
    axes.set_ylim(bottom=0)
    axes.set(title="add f32, GB/s", xlabel="elements")
    axes.legend(frameon=False)


def draw_goals(axes, goals):
    for i, values in enumerate(reversed(goals.values())):
        heights = [i + 0.28 * ((7 * j) % 11 - 5) / 5 for j in range(len(values))]  # apart from each other, the same every time
        colors = [OURS if v >= 1 else MISSED for v in values]
        axes.scatter(values, heights, s=14, c=colors, alpha=0.7, linewidths=0)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    ticks = [t for t in (0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if low <= t <= high]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_yticks(range(len(goals)), list(reversed(goals)))
    axes.set(title="torch's time over narrows', divided by its goal")
    axes.grid(axis="x", color=INK, alpha=0.12, linewidth=0.6)
