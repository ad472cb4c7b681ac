"""Wheels with compiled kernels: `pip install build ziglang`, then

    python -m build --wheel -C--build-option=--plat-name=manylinux_2_28_x86_64

for one of PLATFORMS, on any machine. Without --plat-name the wheel is pure, and its kernels need a C compiler later.

Two ways were considered. scikit-build-core and meson-python build one configuration with the compiler of one machine:
four instruction sets are four targets, each further platform needs a toolchain file and its own headers, and an
installation from source would need CMake or Meson. This hook calls one compiler (zig: clang with the headers of all
platforms) once for each instruction set, and does not change the pure build.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

KERNELS = Path("hf_elmo", "kernels")
X86 = {"avx2": "x86_64_v3", "avx512": "x86_64_v4", "avx512_bf16": "x86_64_v4+avx512bf16"}
AMX = {"amx": "x86_64_v4+avx512bf16+amx_tile+amx_bf16"}  # Linux permits tiles on request
# For each platform, zig's target, and zig's processor for each library, by the names of native.INSTRUCTION_SETS. On ARM
# the kernels use NEON alone: a library for armv8.2 with bfloat16 would be the same.
PLATFORMS = {
    "manylinux_2_28_x86_64": ("x86_64-linux-gnu.2.28", X86 | AMX),
    "manylinux_2_28_aarch64": ("aarch64-linux-gnu.2.28", {"neon": "generic"}),
    "macosx_11_0_arm64": ("aarch64-macos.11.0", {"neon": "apple_m1"}),
    "win_amd64": ("x86_64-windows-gnu", X86),
}


class Wheel(bdist_wheel):
    """A wheel for any Python: pure, or with the kernels for the platform of --plat-name."""

    def finalize_options(self) -> None:
        self.compiles = self.plat_name is not None
        self.distribution.has_ext_modules = lambda: self.compiles
        super().finalize_options()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", self.plat_name if self.compiles else "any"

    def run(self) -> None:
        folder = Path(self.get_finalized_command("build").build_lib, KERNELS, "compiled")
        shutil.rmtree(folder, ignore_errors=True)  # it may be left from an earlier wheel
        if self.compiles:
            compile_kernels(self.plat_name, folder)
        super().run()


def compile_kernels(plat_name: str, folder: Path) -> None:
    """Write a library for each instruction set of a platform."""
    target, processors = PLATFORMS[plat_name]
    flags = (KERNELS / "csrc" / "flags").read_text(encoding="utf-8").split()
    flags += ["-mprefer-vector-width=512"] if "x86_64" in target else []
    folder.mkdir(parents=True)
    compile_ = [sys.executable, "-m", "ziglang", "cc", "-target", target, *flags]
    for name, processor in processors.items():
        with tempfile.TemporaryDirectory() as objects:
            for source in (KERNELS / "csrc").glob("*.c"):
                file = Path(objects, f"{source.stem}.o")
                subprocess.run([*compile_, f"-mcpu={processor}", "-c", source, "-o", file], check=True)
            # A separate command links: with -mcpu, zig would compile Windows' C runtime for each processor, in minutes.
            files = sorted(Path(objects).iterdir())
            subprocess.run([*compile_, "-s", *files, "-o", folder / f"{name}.so"], check=True)
    for file in folder.glob("*.lib"):  # zig writes import libraries for Windows; nothing needs them
        file.unlink()


def readme(address: str | None) -> str:
    """README.md. With `address`, the repository's, pip installs from there, and links are absolute, as the package
    index needs them."""
    text = Path("README.md").read_text(encoding="utf-8")
    if not address:
        return text
    text = text.replace("pip install .  # in the clone", f'pip install "git+{address}"')
    text = re.sub(r"\]\((?=[^)]*\.(?:png|svg)\))(?![a-z]+:)", f"]({address}/raw/HEAD/", text)
    return re.sub(r"\]\((?![a-z]+:|#)", f"]({address}/blob/HEAD/", text)


repository = os.environ.get("GITHUB_REPOSITORY")  # set in a workflow, so in every release
address = f"{os.environ['GITHUB_SERVER_URL']}/{repository}" if repository else None
setup(
    cmdclass={"bdist_wheel": Wheel},
    long_description=readme(address),
    long_description_content_type="text/markdown",
    project_urls={"Repository": address, "Changelog": f"{address}/blob/HEAD/CHANGELOG.md"} if address else {},
)
