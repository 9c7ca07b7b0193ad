"""`python -m tinyllm` is the command line."""

try:
    from tinyllm.cli.main import main

    code = main()
except KeyboardInterrupt:  # before the command line could say so itself
    code = 130
raise SystemExit(code)
