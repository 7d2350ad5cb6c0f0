"""The compiled twins of the functions that touch every record; the rest of the build is in pyproject.toml.

Where there is no compiler the build says so and goes on: tailrace.records and tailrace.spark.codec then use
the pure twins. TAILRACE_BUILD=core in the environment leaves out the twin of Spark's codec, which takes most
of the compiler's time and is of no use without Spark.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

CORE = ["records"]
ALL = [*CORE, "spark.codec"]


def packages_with_a_twin() -> list[str]:
    wanted = os.environ.get("TAILRACE_BUILD", "all")
    if wanted not in ("core", "all"):
        raise SystemExit(f"TAILRACE_BUILD={wanted} is not known. It is core or all (the default)")
    return CORE if wanted == "core" else ALL


def twin(package: str) -> Extension:
    # Without debug information: that of generated C is of no use, and takes a third of the compiler's time.
    return Extension(
        f"tailrace.{package}._compiled",
        [f"src/tailrace/{package.replace('.', '/')}/_compiled.pyx"],
        optional=True,
        extra_compile_args=["-g0"],
    )


setup(ext_modules=[twin(package) for package in packages_with_a_twin()])
