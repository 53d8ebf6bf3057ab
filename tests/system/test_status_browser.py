"""Goal: people can use the status page: with the mouse, the keyboard, a screen reader, in light and dark, and with
10 000 ranks at once. Method: a real Chromium without a screen, a real coordinator, and agents that bench_scale
simulates. With TUTTI_SCREENSHOTS=FOLDER it leaves pictures there.
"""

import os
import subprocess
import tempfile
import unittest

import browser
import support

RANKS = 10000
SIMULATOR = os.path.join(support.PROGRAMS, "bench", "bench_scale")

if browser.find() is None:
    support.skip_all("no chromium: apt-get install chromium")
if not os.path.exists(SIMULATOR):
    support.skip_all("no %s" % SIMULATOR)


class Fleet:
    """Agents that join, and live until they are ended."""

    def __init__(self, coordinator, ranks):
        words = [SIMULATOR, coordinator.address, str(coordinator.process.pid), str(ranks), "1", "3600"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.wait(support.STOP_S)


class StatusPage(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-page-")
        self.addCleanup(self.folder.cleanup)
        path = os.path.join(self.folder.name, "metrics")
        self.coordinator = support.Program(
            "tutti-coordinator", "--metrics=127.0.0.1:0", "--metrics-port-file=" + path, "--heartbeat-timeout=20s"
        )
        self.addCleanup(self.coordinator.kill)
        with open(path) as file:
            self.url = "http://%s/" % file.read().strip()
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)

    def fleet(self, ranks):
        fleet = Fleet(self.coordinator, ranks)
        self.addCleanup(fleet.end)
        self.browser.open(self.url)
        self.browser.until("document.body && document.body.dataset.ranks && at('legend').textContent == '%d alive'" % ranks)
        return fleet

    def picture(self, name):
        if "TUTTI_SCREENSHOTS" in os.environ:
            self.browser.screenshot(os.path.join(os.environ["TUTTI_SCREENSHOTS"], name))

    def assert_quiet(self):
        """No error, and nothing was asked of anybody else."""
        errors = [one for one in self.browser.events if one["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        self.assertEqual(errors, [])
        asked = {one["params"]["request"]["url"] for one in self.browser.events if one["method"] == "Network.requestWillBeSent"}
        self.assertEqual([url for url in asked if not url.startswith((self.url, "data:", "about:"))], [])

    def test_ten_thousand_ranks_stay_quick(self):
        fleet = self.fleet(RANKS)
        page = self.browser
        page.until("at('rows').children.length == 50")
        self.assertEqual(page.run("at('legend').textContent"), "%d alive" % RANKS)
        self.assertIn("Map of %d ranks: %d alive" % (RANKS, RANKS), page.run("at('map').getAttribute('aria-label')"))
        self.picture("status-10000.png")
        # What comes once a second must be done within a fraction of it, also on a busy machine.
        spent = page.run("(() => { const begun = performance.now(); for (let i = 0; i < 10; i++) { drawn = ''; show(); } return (performance.now() - begun) / 10; })()")
        self.assertLess(spent, 250, "ms for all of the page")
        fleet.end()
        # Those whose session was not open yet have longer than the test has.
        page.until("/[0-9]{3} lost/.test(at('legend').textContent)")
        page.run("at('filter').value = 'l', at('filter').onchange()")
        page.until("/^1 to 50 of [0-9]{3}/.test(at('span').textContent)")
        page.until("[...at('rows').children].every(row => row.children[1].textContent == 'lost' && row.children[8].textContent)")
        page.until("/is lost/.test(at('notes').textContent)")
        self.assert_quiet()

    def test_the_keyboard_is_enough(self):
        self.fleet(120)
        page = self.browser
        page.until("at('rows').children.length == 50")
        page.run("at('map').focus()")
        page.press("ArrowRight", 39)
        page.until("/^Rank 0 alive, host host-0/.test(at('picked').textContent)")
        page.press("ArrowRight", 39)
        page.until("/^Rank 1 /.test(at('picked').textContent)")
        page.press("End", 35)
        page.until("/^Rank 119 /.test(at('picked').textContent)")
        page.press("Enter", 13)
        page.until("at('span').textContent == '101 to 120 of 120'")
        page.run("at('before').focus()")
        page.press(" ", 32)
        page.until("at('span').textContent == '51 to 100 of 120'")
        # By Tab alone one comes to everything that can be used, and sees where one is.
        page.run("document.activeElement.blur()")
        reached = []
        for _ in range(12):
            page.press("Tab", 9)
            reached.append(page.run("document.activeElement.id || document.activeElement.className"))
        for one in ("skip", "jobs", "map", "filter", "before", "next", "notes"):
            self.assertIn(one, reached)
        self.assert_quiet()

    def test_a_screen_reader_hears_names_and_news(self):
        self.fleet(20)
        page = self.browser
        page.until("at('rows').children.length == 20")
        nodes = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
        for role in ("heading", "table", "columnheader", "combobox", "button", "image", "log", "status", "main"):
            self.assertIn(role, roles)
        for node in nodes:
            if not node["ignored"] and node["role"]["value"] in ("button", "combobox", "image", "table", "log", "region", "link"):
                self.assertTrue(node.get("name", {}).get("value"), node)
        self.assertIn("Ops a second: now", page.run("at('ops').getAttribute('aria-label')"))
        self.assert_quiet()

    def test_light_and_dark(self):
        self.fleet(300)
        page = self.browser
        page.until("at('rows').children.length == 50")
        grounds = {}
        for scheme in ("light", "dark"):
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            grounds[scheme] = page.run("getComputedStyle(document.body).backgroundColor")
            # Text on its ground: WCAG's ratio for small text.
            ratio = page.run("""(() => {
                const parts = colour => colour.match(/\\d+/g).slice(0, 3).map(Number);
                const light = colour => parts(colour).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
                    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
                const card = getComputedStyle(document.querySelector("section")).backgroundColor;
                const inks = [...document.querySelectorAll("dd, dt, td, figcaption, .quiet")].map(one => getComputedStyle(one).color);
                return Math.min(...inks.map(ink => { const [a, b] = [light(ink), light(card)].sort(); return (b + 0.05) / (a + 0.05); }));
            })()""")
            self.assertGreater(ratio, 4.5, scheme)
            self.picture("status-%s.png" % scheme)
        self.assertNotEqual(grounds["light"], grounds["dark"])
        self.assert_quiet()


if __name__ == "__main__":
    support.main()
