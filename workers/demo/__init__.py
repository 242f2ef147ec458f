"""The demo target and its draft model, which ship with the project, and the programs that train and measure them."""
