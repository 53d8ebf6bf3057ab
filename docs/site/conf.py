"""Sphinx, for the folder that build.py has made."""

project = "Tutti"
author = copyright = "the Tutti authors"
html_title = "Tutti"
extensions = ["myst_parser"]
root_doc = "index"
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
pygments_style = "default"
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 6  # as a forge makes them
exclude_patterns = []
templates_path = []
# What is `$ command` with its output, or JSON with "...", is shown as it is.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]
