"""Imported when a caller asks for it."""

import tutti


@tutti.function("tests.later.seven")
def seven():
    return 7
