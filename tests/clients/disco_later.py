"""Imported by import_python_module()."""

import tutti


@tutti.function("disco_later.seven", signature="-> int")
def seven():
    return 7
