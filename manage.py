#!/usr/bin/env python
"""Django's command line, from a bare checkout or an installed package."""

import os
import sys
from pathlib import Path

for root in ("platform", "inference", "kernels"):
    sys.path.insert(0, str(Path(__file__).resolve().parent / root))


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pagoda.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"A setting is wrong: {error}. docs/settings.md has them all.")


if __name__ == "__main__":
    main()
