"""How a test is called, what it skips for, and other programs that it runs."""
import argparse
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77  # ctest's SKIP_RETURN_CODE
_OPTIONS = {
    "larder": "the program", "model": "a GGUF file",
    "build": "the build folder, with everything built in it",
    "cache": "a folder for what guests boot: kernel, root file system and the like"
}


def parser(doc, *required):
    """For a script's options; `required` are those that it can't do without."""
    made = argparse.ArgumentParser(description=doc,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in required:
        made.add_argument(f"--{name}", required=True, help=_OPTIONS.get(name))
    return made


def options_of_tests(made):
    """The options of a script whose others are for unittest.main()."""
    options, rest = made.parse_known_args()
    sys.argv[1:] = rest
    return options


def skip(reason):
    """Ends a test that can't run here."""
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def skip_without(tools, packages):
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        skip(f"{', '.join(missing)} not installed ({packages})")


def skip_without_two_cpus(reason):
    if len(os.sched_getaffinity(0)) < 2:
        skip(f"two CPUs are needed: {reason}")


def folder_of(case):
    """A folder of its own for a test (self) or for a class of tests (cls), removed at its end."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-test-"))
    clean_up = case.addClassCleanup if isinstance(case, type) else case.addCleanup
    clean_up(shutil.rmtree, folder)
    return folder


def executable(path, text):
    """Writes a script."""
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(*command, **options):
    """The exit status of a program, and what it said on both outputs."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False, **options)
    return done.returncode, (done.stdout + done.stderr).strip()


def load(path):
    """A script as a module, whatever its name ends in."""
    name = path.name.removesuffix(".py").replace("-", "_")
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.dont_write_bytecode = True
    sys.modules[name] = module
    loader.exec_module(module)
    return module
