"""`python -m tests.layouts` writes the layout of this version's checkpoints, as long as it is not released."""

from . import describe

if __name__ == "__main__":
    print(f"{describe()}: written")
