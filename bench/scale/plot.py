"""The plot of scale.py: cost against the number of agents, both logarithmic, as SVG."""

import math

WIDTH, HEIGHT, LEFT, TOP, GAP = 400, 260, 60, 40, 30
PANELS = (  # title, unit; then key, words, colour
    ("Time until all are done", "s", (("joined_s", "join at one instant", "#1f77b4"),
                                      ("event_s", "one death told", "#d62728"),
                                      ("deaths_s", "a tenth dies (1000 at most)", "#9467bd"),
                                      ("group_s", "group of all by all", "#2ca02c"))),
    ("CPU of the coordinator", "s", (("join_cpu_s", "join", "#1f77b4"),
                                     ("deaths_cpu_s", "a tenth dies (1000 at most)", "#9467bd"),
                                     ("group_cpu_s", "group of all by all", "#2ca02c"),
                                     ("beat_core", "heartbeats, of a core", "#ff7f0e"))),
    ("Memory of the coordinator for an agent", "KiB", (("rss_kib", "joined, with session", "#444444"),)),
)


def decades(low, high):
    return [10.0**power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def panel(at, title, unit, series, rows):
    values = [max(row[key], 1e-4) for key, _, _ in series for row in rows]
    marks = decades(min(values), max(max(values), min(values) * 9))
    sizes = [row["agents"] for row in rows]
    span = math.log10(max(sizes[-1], sizes[0] * 1.01) / sizes[0])

    def x(agents):
        return at + LEFT + WIDTH * math.log10(agents / sizes[0]) / span

    def y(value):
        return TOP + HEIGHT * (1 - math.log10(max(value, 1e-4) / marks[0]) / math.log10(marks[-1] / marks[0]))

    lines = ['<text x="%d" y="22" font-weight="bold">%s, %s</text>' % (at + LEFT, title, unit)]
    for mark in marks:
        lines.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>' % (at + LEFT, at + LEFT + WIDTH, y(mark), y(mark)))
        lines.append('<text x="%d" y="%.1f" text-anchor="end">%g</text>' % (at + LEFT - 5, y(mark) + 4, mark))
    for agents in sizes:
        lines.append('<text x="%.1f" y="%d" text-anchor="middle">%d</text>' % (x(agents), TOP + HEIGHT + 18, agents))
    for i, (key, words, colour) in enumerate(series):
        points = " ".join("%.1f,%.1f" % (x(row["agents"]), y(row[key])) for row in rows)
        lines.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (points, colour))
        lines += ['<circle cx="%s" cy="%s" r="3" fill="%s"/>' % (*point.split(","), colour) for point in points.split()]
        lines.append('<text x="%d" y="%d" fill="%s">%s</text>' % (at + LEFT, TOP + HEIGHT + 40 + 16 * i, colour, words))
    return lines


def draw(rows):
    width = len(PANELS) * (LEFT + WIDTH + GAP)
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (width, HEIGHT + TOP + 115),
             '<rect width="100%" height="100%" fill="white"/>']
    for i, (title, unit, series) in enumerate(PANELS):
        lines += panel(i * (LEFT + WIDTH + GAP), title, unit, series, rows)
    return "\n".join(lines + ["</svg>"]) + "\n"
