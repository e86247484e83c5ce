"""Run the command line with `python -m holmes`, also under `torchrun -m holmes`."""

from holmes.cli.main import main

if __name__ == "__main__":  # a worker process that imports this file again must not start anew
    main()
