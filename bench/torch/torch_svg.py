"""A plot of times as text: a column for each row of the table, a point for each turn, a line at each median."""

import statistics

COLOURS = ("#888888", "#1f77b4", "#d62728", "#2ca02c")
WIDTH, HEIGHT, LEFT, TOP = 460, 300, 60, 40


def panel(title, times, at):
    most = max(statistics.median(values) for values in times.values()) * 1e3 * 1.8
    lines = ['<text x="%d" y="20" font-weight="bold">%s, ms by turn</text>' % (at + LEFT, title)]

    def height(value):
        return TOP + HEIGHT * (1 - min(value * 1e3 / most, 1))

    for mark in range(5):
        y = TOP + HEIGHT * (1 - mark / 4)
        lines.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>' % (at + LEFT, at + LEFT + WIDTH, y, y))
        lines.append('<text x="%d" y="%.1f" text-anchor="end">%.3g</text>' % (at + LEFT - 5, y + 4, most * mark / 4))
    for colour, (name, values) in zip(COLOURS, times.items()):
        middle = height(statistics.median(values))
        points = " ".join("%.1f,%.1f" % (at + LEFT + WIDTH * (i + 0.5) / len(values), height(value)) for i, value in enumerate(values))
        lines.append('<polyline points="%s" fill="none" stroke="%s"/>' % (points, colour))
        lines.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="4"/>' % (
            at + LEFT, at + LEFT + WIDTH, middle, middle, colour))
    return lines


def write(path, rows):
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (
        len(rows) * (WIDTH + LEFT + 20), HEIGHT + TOP + 50), '<rect width="100%" height="100%" fill="white"/>']
    for i, (title, times) in enumerate(rows):
        lines += panel(title, times, i * (WIDTH + LEFT + 20))
    for i, (colour, name) in enumerate(zip(COLOURS, rows[0][1] if rows else ())):
        lines.append('<text x="%d" y="%d" fill="%s">%s</text>' % (LEFT + i * 200, HEIGHT + TOP + 30, colour, name))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines + ["</svg>"]) + "\n")
