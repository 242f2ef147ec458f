"""`python -m service` is `breakeven`."""

from service.cli import main

if __name__ == "__main__":
    main()
