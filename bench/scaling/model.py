#!/usr/bin/env python3
"""What the measurements of scaling.py say of other numbers of hosts: an alpha-beta-gamma model of each algorithm.

usage: model.py FILE.json [--docs]

Fits the constants, prints what they predict beside what was measured, and what they say of 64 to 4096 hosts. --docs
writes the same as tables into docs/scaling.md, between its marks.
"""
import json
import math
import os
import sys

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "scaling.md")
KIB, MIB = 1 << 10, 1 << 20
CHUNK = 64 * KIB  # of what is pipelined
PUSHED = MIB  # larger messages are announced, asked for and sent: three trips (lib/coll/tcp)
MORE = 1  # trips that ops with data take beyond their rounds: measured, not explained
FAR = (64, 256, 1024, 4096)
FAR_SIZES = (8, 8 * KIB, MIB, 64 * MIB)
HEARTBEAT_S = 2  # the coordinator's --heartbeat-interval


# ------------------------------------------------------------------------------ algorithms


def up(n):
    return max(0, math.ceil(math.log2(n)))


def down(n):
    return int(math.log2(n))


def odd(n):
    """1 where ranks beyond a power of two are folded into others before, and told after."""
    return int(n & (n - 1) != 0)


def part(n):
    return (n - 1) / n


def chunks(size):
    return max(1, math.ceil(size / CHUNK))


def piped(rounds, size, link):
    """A pipeline of `rounds` steps: the first chunk's way, then one chunk a step. Bytes on the busiest link."""
    return link * size + (rounds - 1) * min(size, CHUNK)


def chain_reduce(n, size):
    return 2 * (n - 1), piped(2 * (n - 1), size, 1), size, 2 * chunks(size)


def chain_broadcast(n, size):
    return n - 1, piped(n - 1, size, 1), 0, chunks(size)


# Of n ranks and a tensor of `size` bytes (the whole one): rounds one after the other; bytes through the busiest link
# in one direction; bytes that the busiest rank reduces; messages that it sends.
ALGORITHMS = {
    ("all_reduce", "flat"): lambda n, s: (1, (n - 1) * s, (n - 1) * s, n - 1),
    ("all_reduce", "direct"): lambda n, s: (2, 2 * part(n) * s, part(n) * s, 2 * (n - 1)),
    ("all_reduce", "ring"): lambda n, s: (2 * (n - 1), 2 * part(n) * s, part(n) * s, 2 * (n - 1)),
    ("all_reduce", "recursive_doubling"): lambda n, s: (
        down(n) + 2 * odd(n), (down(n) + odd(n)) * s, (down(n) + odd(n)) * s, down(n) + odd(n)),
    ("all_reduce", "rabenseifner"): lambda n, s: (
        2 * down(n) + 2 * odd(n), (2 * part(1 << down(n)) + odd(n)) * s, (part(1 << down(n)) + odd(n)) * s,
        2 * down(n) + odd(n)),
    ("all_reduce", "chain"): chain_reduce,
    ("all_reduce", "bruck"): lambda n, s: (up(n), (n - 1) * s, (n - 1) * s, up(n)),
    ("broadcast", "binomial"): lambda n, s: (up(n), up(n) * s, 0, up(n) * chunks(s)),
    ("broadcast", "chain"): chain_broadcast,
    ("all_gather", "direct"): lambda n, s: (1, part(n) * s, 0, n - 1),
    ("all_gather", "ring"): lambda n, s: (n - 1, part(n) * s, 0, n - 1),
    ("all_gather", "recursive_doubling"): lambda n, s: (up(n), part(n) * s, 0, up(n)),
    ("all_gather", "bruck"): lambda n, s: (up(n), part(n) * s, 0, up(n)),
    ("reduce_scatter", "direct"): lambda n, s: (1, part(n) * s, part(n) * s, n - 1),
    ("reduce_scatter", "pairwise"): lambda n, s: (n - 1, part(n) * s, part(n) * s, n - 1),
    ("reduce_scatter", "ring"): lambda n, s: (n - 1, part(n) * s, part(n) * s, n - 1),
    ("reduce_scatter", "recursive_halving"): lambda n, s: (up(n), part(n) * s, part(n) * s, up(n)),
    ("all_to_all", "direct"): lambda n, s: (1, part(n) * s, 0, n - 1),
    ("all_to_all", "pairwise"): lambda n, s: (n - 1, part(n) * s, 0, n - 1),
    ("all_to_all", "bruck"): lambda n, s: (up(n), up(n) * s / 2, 0, up(n)),
    ("barrier", "dissemination"): lambda n, s: (0, 0, 0, 0),  # the agreement is one
}
PIPELINES = {"chain"}
KEEPING, KEPT_MAX = {"flat", "bruck"}, 64 * MIB  # all ranks' tensors beside their own: not more than that
POWERS_OF_TWO = {("all_gather", "recursive_doubling"), ("reduce_scatter", "recursive_halving")}

# In each other's memory: bytes that all ranks together read and write for a tensor of 1 byte.
SHARED = {"all_reduce": lambda n: 2 * n, "broadcast": lambda n: 2 * (n - 1), "all_gather": lambda n: 2 * n,
          "reduce_scatter": lambda n: n + 1, "all_to_all": lambda n: 2 * n, "barrier": lambda n: 0}

# Without --algorithm, of agents that know none: what they take between hosts (lib/coll/README.md).
SMALL, LONG = 8 * KIB, 128 * KIB


def algorithm_of(row):
    op, size = row["op"], row["bytes"]
    if row["algorithm"] != "auto":
        return row["algorithm"]
    if op == "barrier":
        return "dissemination"
    if op == "broadcast":
        return "binomial" if size < LONG else "chain"
    return "flat" if op == "all_reduce" and size <= SMALL else "direct"


# ------------------------------------------------------------------------------ terms

HOSTS = (("c", "us", "a call by gRPC, beginning and ending an op"),
         ("alpha", "us", "a trip from one host to another, and waking up there"),
         ("omega", "us", "the work for a message"),
         ("beta", "ns/B", "a byte through the busiest link"),
         ("gamma", "ns/B", "a byte that is reduced"))
HOST = (("c", "us", "a call by gRPC, beginning and ending an op"),
        ("alpha", "us", "a round of the agreement"),
        ("delta", "ns/B", "a byte that a core reads or writes"))


def crowd(n, cores):
    """How many ranks share a core: the work of hosts that are one machine comes one behind the other."""
    return max(1, n / cores) if cores else 1


def terms_of_hosts(op, algorithm, n, size, cores=0):
    """[in] cores  of the machine that all hosts are; 0 = each is one. In the order of HOSTS."""
    rounds, link, reduced, messages = ALGORITHMS[op, algorithm](n, size)
    many = crowd(n, cores)
    message = CHUNK if algorithm in PIPELINES and size > CHUNK else link / max(1, messages)
    trips = rounds * (3 if message > PUSHED else 1) + (chunks(size) - 1 if algorithm in PIPELINES else 0)
    trips += up(n) + (MORE if op != "barrier" else 0)
    work = max(trips, (messages + up(n)) * many)
    return [many, trips, work, link * 1e-3, reduced * many * 1e-3]


def terms_of_host(op, n, size, cores):
    many = crowd(n, cores)
    return [many, up(n) * many, SHARED[op](n) * size / min(n, cores) * 1e-3]


def terms_of_row(row, cores):
    if row["place"] == "host":
        return terms_of_host(row["op"], row["ranks"], row["bytes"], cores)
    return terms_of_hosts(row["op"], algorithm_of(row), row["ranks"], row["bytes"], cores)


# ------------------------------------------------------------------------------ fitting


def solve(matrix, wanted):
    """Gauss, with pivots; None when there is no one answer."""
    size = len(wanted)
    rows = [list(row) + [value] for row, value in zip(matrix, wanted)]
    for at in range(size):
        pivot = max(range(at, size), key=lambda index: abs(rows[index][at]))
        if abs(rows[pivot][at]) < 1e-30:
            return None
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for index in range(size):
            if index != at:
                factor = rows[index][at] / rows[at][at]
                rows[index] = [left - factor * right for left, right in zip(rows[index], rows[at])]
    return [rows[at][size] / rows[at][at] for at in range(size)]


def least_squares(rows, wanted, columns):
    normal = [[sum(row[i] * row[j] for row in rows) for j in columns] for i in columns]
    return solve(normal, [sum(row[i] * value for row, value in zip(rows, wanted)) for i in columns])


def fit(terms, times, given):
    """Constants of 0 or more that make the relative errors small: the best of all sets of terms that are not 0.

    [in] given  by index: those that are known already
    """
    rows = [[term / time for term in row] for row, time in zip(terms, times)]
    count, best, best_error = len(terms[0]), None, math.inf
    known = [given.get(index, 0.0) for index in range(count)]
    left = [1 - predict(row, known) for row in rows]
    for chosen in range(1, 1 << count):
        columns = [index for index in range(count) if chosen >> index & 1 and index not in given]
        found = least_squares(rows, left, columns)
        if found is None or min(found, default=0) < 0:
            continue
        constants = list(known)
        for index, value in zip(columns, found):
            constants[index] = value
        error = sum((predict(row, constants) - 1) ** 2 for row in rows)
        if error < best_error:
            best, best_error = constants, error
    return best


def predict(terms, constants):
    return sum(term * constant for term, constant in zip(terms, constants))


class Place:
    """One host, or many: its rows, and the constants that fit them."""

    def __init__(self, rows, names, terms, given):
        self.rows, self.names, self.given = rows, names, given
        self.terms = [terms(row) for row in rows]
        self.times = [row["us"] for row in rows]
        self.constants = fit(self.terms, self.times, given) if len(rows) > len(names) else None

    def predictions(self):
        return [predict(terms, self.constants) for terms in self.terms]

    def errors(self):
        return sorted(max(said / took, took / said) for said, took in zip(self.predictions(), self.times))


def read(path):
    with open(path) as file:
        document = json.load(file)
    cores = document["cores"]
    places = {}
    for place, names in (("host", HOST), ("hosts", HOSTS), ("far", HOSTS)):
        rows = [row for row in document["rows"] if row["place"] == place]
        if any(row["algorithm"] != "auto" for row in rows):  # then it is known what each took
            rows = [row for row in rows if row["algorithm"] != "auto"]
        given = {}
        if place == "far" and places["hosts"].constants is not None:  # the link is the same; sizes are too small here
            given = {index: places["hosts"].constants[index] for index in (3, 4)}
        places[place] = Place(rows, names, lambda row: terms_of_row(row, cores), given)
    return document, places


# ------------------------------------------------------------------------------ words


def words(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def time_words(us):
    return f"{us * 1e-6:.3g} s" if us >= 1e6 else f"{us * 1e-3:.3g} ms" if us >= 1000 else f"{us:.0f} us"


def constants_table(place):
    lines = ["| constant | value | what it costs |", "|---|---|---|"]
    for index, ((name, unit, what), value) in enumerate(zip(place.names, place.constants)):
        lines.append(f"| {name} | {value:.3g} {unit} | {what}{', as above' if index in place.given else ''} |")
    errors = place.errors()
    lines += ["", f"Of {len(errors)} rows the prediction is off by a factor of {errors[len(errors) // 2]:.2f} in the "
              f"middle, {errors[len(errors) * 9 // 10]:.2f} for nine of ten, {errors[-1]:.2f} at most."]
    return lines


def rows_table(place):
    """A line for each op, algorithm and size; below each number of ranks what was measured, and what is predicted."""
    counts = sorted({row["ranks"] for row in place.rows})
    found = {}
    for row, said in zip(place.rows, place.predictions()):
        name = algorithm_of(row) if row["place"] != "host" else "shared"
        cells = found.setdefault((row["op"], name, row["bytes"]), {})
        cells[row["ranks"]] = f"{row['us']:.0f} / {said:.0f}"
    lines = ["Microseconds, measured / predicted:", "",
             "| op | algorithm | bytes | " + " | ".join(f"{count} ranks" for count in counts) + " |",
             "|---|---|---|" + "---|" * len(counts)]
    for (op, name, size), cells in sorted(found.items()):
        lines.append(f"| {op} | {name} | {words(size)} | " + " | ".join(cells.get(count, "") for count in counts) + " |")
    return lines


def fits(op, algorithm, n, size):
    return not ((op, algorithm) in POWERS_OF_TWO and odd(n)) and not (algorithm in KEEPING and n * size > KEPT_MAX)


def best(op, n, size, constants):
    found = []
    for (name, algorithm) in ALGORITHMS:
        if name == op and fits(op, algorithm, n, size):
            found.append((predict(terms_of_hosts(op, algorithm, n, size), constants), algorithm))
    return sorted(found)


def far_table(constants):
    lines = ["| op | bytes | " + " | ".join(f"{n} hosts" for n in FAR) + " |", "|---|---|" + "---|" * len(FAR)]
    for op in sorted({op for op, _ in ALGORITHMS}):
        for size in FAR_SIZES if op != "barrier" else (0,):
            cells = []
            for n in FAR:
                if op not in ("all_reduce", "broadcast", "barrier") and size < 4 * n:
                    cells.append("")
                    continue
                found = best(op, n, size, constants)
                cells.append(f"{found[0][1]}, {time_words(found[0][0])}" +
                             (f" ({found[1][1]} {time_words(found[1][0])})" if len(found) > 1 else ""))
            lines.append(f"| {op} | {words(size)} | " + " | ".join(cells) + " |")
    return lines


def line_of(points):
    """a + b n, by least squares; b is not below 0."""
    count = len(points)
    mean_n = sum(n for n, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((n - mean_n) ** 2 for n, _ in points)
    slope = sum((n - mean_n) * (y - mean_y) for n, y in points) / spread if spread else 0
    slope = max(0.0, slope)
    return mean_y - slope * mean_n, slope


def coordinator_lines(document):
    seen = document["coordinator"]
    if len(seen) < 2:
        return ["Not measured."]
    _, join = line_of([(one["ranks"], one["join_cpu_ms"]) for one in seen])
    _, idle = line_of([(one["ranks"], one["idle_cpu_us_per_s"]) for one in seen])
    _, memory = line_of([(one["ranks"], one["resident_bytes"]) for one in seen])
    limit = f"{1e6 / idle:,.0f} ranks keep one core busy with heartbeats alone" if idle > 0 else "too little to be seen"
    lines = ["| ranks | joining, ms of one core | idle, us of one core in a second | resident |", "|---|---|---|---|"]
    for n in [one["ranks"] for one in seen] + list(FAR):
        one = next((one for one in seen if one["ranks"] == n), None)
        if one:
            lines.append(f"| {n} | {one['join_cpu_ms']:.1f} | {one['idle_cpu_us_per_s']:.0f} | "
                         f"{one['resident_bytes'] / MIB:.1f} MiB |")
        else:
            first = seen[0]
            lines.append(f"| {n}, predicted | {first['join_cpu_ms'] + join * (n - first['ranks']):.0f} | "
                         f"{first['idle_cpu_us_per_s'] + idle * (n - first['ranks']):.0f} | "
                         f"{(first['resident_bytes'] + memory * (n - first['ranks'])) / MIB:.0f} MiB |")
    return lines + ["", f"A rank more: {join:.2f} ms to join, {idle:.0f} us a second while it does nothing (a heartbeat "
                    f"each {HEARTBEAT_S} s), {memory / KIB:.0f} KiB: {limit}."]


def choices_lines(document, place):
    """What agents chose by themselves, beside the best that they could have taken."""
    found = {}
    for row in document["rows"]:
        if row["place"] == place:
            found.setdefault((row["op"], row["bytes"], row["ranks"], row["hosts"]), {})[row["algorithm"]] = row["us"]
    lines = ["| op | bytes | hosts | ranks | auto us | best | its us | ratio |", "|---|---|---|---|---|---|---|---|"]
    for (op, size, ranks, hosts), times in sorted(found.items()):
        others = sorted((us, name) for name, us in times.items() if name != "auto")
        if others and "auto" in times:
            us, name = others[0]
            lines.append(f"| {op} | {words(size)} | {hosts} | {ranks} | {times['auto']:.1f} | {name} | {us:.1f} | "
                         f"{times['auto'] / us:.2f} |")
    return lines if len(lines) > 2 else ["Not measured."]


def report(path):
    document, places = read(path)
    delay = f"{document['delay_ms']:g} ms"
    lines = [f"Measured {document['date']}: " + "; ".join(document["about"]) + f"; hosts: {document['rate']} each.", ""]
    for place, title in (("host", "One host"), ("hosts", "Between hosts"), ("far", f"Between hosts {delay} apart")):
        known = places[place].constants is not None
        lines += ["### " + title, ""]
        lines += constants_table(places[place]) + [""] + rows_table(places[place]) if known else ["Not measured."]
        lines.append("")
    for place, title in (("hosts", "64 to 4096 hosts"), ("far", f"64 to 4096 hosts {delay} apart")):
        if places[place].constants is not None:
            lines += ["### " + title, "",
                      "The best algorithm, its time, and the next one, for hosts that are machines of their own with the "
                      "link and the constants above.", ""] + far_table(places[place].constants) + [""]
    lines += ["### What agents chose", ""] + choices_lines(document, "hosts") + [""]
    lines += ["### Two ranks on each host", ""] + choices_lines(document, "pairs") + [""]
    return lines + ["### The coordinator", ""] + coordinator_lines(document) + [""]


def write_docs(lines):
    begin, end = "<!-- model.py: begin -->", "<!-- model.py: end -->"
    with open(DOCS) as file:
        text = file.read()
    head, rest = text.split(begin)
    tail = rest.split(end)[1]
    with open(DOCS, "w") as file:
        file.write(head + begin + "\n\n" + "\n".join(lines) + "\n" + end + tail)


def main():
    words_given = [word for word in sys.argv[1:] if word != "--docs"]
    if len(words_given) != 1:
        sys.exit(__doc__.split("\n\n")[1])
    lines = report(words_given[0])
    if "--docs" in sys.argv:
        write_docs(lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
