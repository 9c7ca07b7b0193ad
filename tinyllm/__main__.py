"""`python -m tinyllm` is the command line."""

from tinyllm.cli import main

raise SystemExit(main())
