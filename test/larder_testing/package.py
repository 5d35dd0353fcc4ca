"""The Debian package of a build folder."""
import pathlib
import subprocess


def make_package(build, folder):
    """The path of the .deb, made by cpack in `folder`."""
    done = subprocess.run(["cpack", "-G", "DEB", "-B", str(folder)], cwd=build, capture_output=True,
                          text=True, check=False)
    packages = list(pathlib.Path(folder).glob("larder_*.deb"))
    if done.returncode or len(packages) != 1:
        raise RuntimeError(
            f"cpack ended with {done.returncode}, packages {packages}:\n{done.stdout}{done.stderr}")
    return packages[0]
