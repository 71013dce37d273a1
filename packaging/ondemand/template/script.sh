#!/usr/bin/env bash
# Blocks until the session ends. One program for each page of the browser, as the user who launched it.
PATH=/opt/advisor/bin:$PATH
# The portal asks from its own host, so localhost would not do.
ADVISOR_TUI_KEY=$password exec advisor tui --browser "0.0.0.0:$port"
