"""Goal: ./run docs makes a site in which every link arrives, and refuses a public function without a comment.

Method: `units` reads all headers, and texts that are wrong. `site` builds the site, looks for the reference and the search
in it, and checks a copy of the tree that has a broken link and a function without its comment.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
SITE = os.path.join(SOURCE, "docs", "site")
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), SITE]
import tap  # noqa: E402

import c_api  # noqa: E402
import comments  # noqa: E402

BUILD_S = 900
BUILT = os.path.join(SOURCE, "build", "docs", "site")

HEADER = """/* A header. */
#ifndef TUTTI_A_H
#define TUTTI_A_H

/*
 * Do it.
 *
 * [in]  what  not NULL
 * [out] err   what was wrong;
 *             or not
 *
 * TUTTI_NOT_FOUND  NO_KEY: there is
 *                  none
 *                  NO_RANK: see tutti_two
 * and others
 */
TUTTI_API tutti_code tutti_one(const char *what,
                               tutti_error *err);

/* [in] none */

TUTTI_API void tutti_two(void);

/* A struct. */
typedef struct tutti_three {
    int (*call)(void); /* calls; it */
} tutti_three;

#endif
"""

MADE = """Do it.

`what` \\[in\\]
: not NULL

`err` \\[out\\]
: what was wrong; or not

`TUTTI_NOT_FOUND`
: `NO_KEY`: there is none; `NO_RANK`: see [`tutti_two`](#tutti_two)

and others
"""


class Units(unittest.TestCase):
    def test_every_public_function_has_a_comment(self):
        with tempfile.TemporaryDirectory(prefix="tutti-site-") as folder:
            pages, complaints = c_api.write(SOURCE, folder)
        self.assertEqual(complaints, [])
        self.assertGreater(len(pages), 30)

    def test_a_function_without_a_comment_is_found(self):
        entries = c_api.read_header(HEADER)
        self.assertEqual([entry.name for entry in entries if entry.name], ["tutti_one", "tutti_two", "tutti_three"])
        self.assertEqual(c_api.undocumented(entries), ["tutti_two"])

    def test_a_function_that_the_reader_misses_is_found(self):
        self.assertEqual(c_api.missed(HEADER, c_api.read_header(HEADER)), [])
        self.assertEqual(c_api.missed(HEADER, c_api.read_header(HEADER)[:2]), ["tutti_three", "tutti_two"][1:])

    def test_a_comment_becomes_what_it_looks_like(self):
        one = c_api.read_header(HEADER)[1]
        self.assertEqual(comments.Markdown({"tutti_two"}).render(one.comment), MADE)

    def test_lists_and_code_stay_lists_and_code(self):
        text = "Words_1 of\ntwo lines.\n\n    x = *y;\n\n    z;\n\n- an item\n  goes on\n- another\n"
        made = "Words\\_1 of two lines.\n\n```c\nx = *y;\n\nz;\n```\n\n- an item goes on\n- another\n"
        self.assertEqual(comments.Markdown().render(text), made)


def run_docs(source, *words):
    done = subprocess.run([os.path.join(source, "run"), "docs", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=BUILD_S, close_fds=False)
    return done.returncode, done.stdout.decode(errors="replace")


def page(name):
    with open(os.path.join(BUILT, name)) as file:
        return file.read()


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.code, cls.said = run_docs(SOURCE)
        if "pip could not install" in cls.said:
            raise unittest.SkipTest("no PyPI: the generator could not be installed")

    def test_the_site_is_built_and_every_link_arrives(self):
        self.assertEqual(self.code, 0, self.said)
        self.assertIn("every link arrives", self.said)

    def test_it_has_a_quick_start_the_reference_and_a_search(self):
        self.assertIn("Quick start", page("index.html"))
        self.assertIn('id="tutti-all-reduce-data"', page("api/c/tutti-op_data-h.html"))
        self.assertIn("Every rank gets the reduction of all inputs.", page("api/python.html"))
        self.assertIn("Returns the value of a key.", page("api/proto/store_service.html"))
        self.assertIn("tutti_group_shrink", page("searchindex.js"))
        self.assertIn("searchindex.js", page("search.html"))

    def test_a_broken_link_and_a_function_without_a_comment_are_refused(self):
        with tempfile.TemporaryDirectory(prefix="tutti-site-") as folder:
            copy = os.path.join(folder, "tree")
            skipped = shutil.ignore_patterns("build", ".git", "__pycache__", ".cache")
            shutil.copytree(SOURCE, copy, ignore=skipped)
            os.mkdir(os.path.join(copy, "build"))
            venv = os.path.join(copy, "build", "docs-venv")
            os.symlink(os.path.join(SOURCE, "build", "docs-venv"), venv)
            with open(os.path.join(copy, "docs", "errors.md"), "a") as file:
                file.write("\n[gone](gone.md) [nowhere](install.md#nowhere-at-all)\n")
            header = os.path.join(copy, "include", "tutti", "code.h")
            with open(header) as file:
                text = file.read()
            with open(header, "w") as file:
                file.write(text.replace("#ifdef __cplusplus\n}", "TUTTI_API void tutti_silent(void);\n\n#ifdef __cplusplus\n}"))
            code, said = run_docs(copy, "--check")
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"errors\.md:.*gone\.md")
        self.assertRegex(said, r"nowhere-at-all")
        self.assertIn("include/tutti/code.h: tutti_silent has no comment", said)


if __name__ == "__main__":
    part = sys.argv.pop(1)
    del globals()["Site" if part == "units" else "Units"]
    tap.main()
