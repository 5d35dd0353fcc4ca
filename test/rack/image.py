"""What guests boot: Debian's kernel, an initramfs of busybox and the modules that a rack needs, and
a root file system with systemd.

Everything comes from apt and is unpacked, not installed. It is kept in a cache folder:
LARDER_RACK_CACHE, or the one the caller names.
"""
import contextlib
import fcntl
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# In the order of loading; dependencies are found automatically and come first. They are for the
# network, disks and shares of QEMU, the root's layers, soft-RoCE with the checksums that it looks
# up by name, and lost packets.
MODULES = [
    "virtio_pci", "virtio_net", "virtio_blk", "9pnet_virtio", "9p", "overlay", "squashfs",
    "autofs4", "dummy", "crc32_generic", "crc32c_generic", "crc32_pclmul", "rdma_rxe", "ib_uverbs",
    "rdma_ucm", "sch_netem",
]

# Packages besides the dependencies of Larder's .deb: a server that `larder-cluster` can use, and
# RDMA.
ROOT_PACKAGES = [
    "systemd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2", "openssh-server", "rdma-core",
    "ibverbs-providers", "python3-minimal",
]

# Unused clocks, timers and consoles cost seconds under emulation.
MASKED_UNITS = [
    "getty@tty1.service", "serial-getty@ttyS0.service", "console-getty.service",
    "getty-static.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
    "e2scrub_reap.service", "e2scrub_all.timer", "fstrim.timer", "systemd-timesyncd.service",
    "systemd-pstore.service", "systemd-update-utmp.service", "systemd-hwdb-update.service",
    "ldconfig.service", "systemd-binfmt.service", "systemd-firstboot.service", "logrotate.timer",
    "systemd-logind.service",
]


class Missing(Exception):
    """Something that guests need is missing on this machine: tests are skipped and name it."""


def run(arguments, **options):
    """Runs a program; its output is the error's text if it fails."""
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    if done.returncode:
        raise Missing(f"{' '.join(map(str, arguments[:3]))} failed: {done.stdout.strip()[-400:]}")
    return done.stdout


def require(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Missing(f"{program} is not installed (scripts/install-packages test)")


def cache_folder(default):
    folder = pathlib.Path(os.environ.get("LARDER_RACK_CACHE", default)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(folder):
    """A lock, so that tests that run at the same time build each part once."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fetch_kernel(cache):
    """The folder of Debian's kernel package, unpacked: vmlinux, and modules below lib/."""
    folder = cache / "kernel"
    if (folder / "vmlinux").exists():
        return folder
    apt = []
    if "Depends: linux-image-" not in subprocess.run(
            ["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True).stdout:
        # A machine without package lists: fetch them into the cache, which needs no root.
        (cache / "apt" / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        apt = ["-o", f"Dir::State::Lists={cache}/apt/lists", "-o", f"Dir::Cache={cache}/apt"]
        run(["apt-get", "-q", *apt, "update"])
    depends = run(["apt-cache", *apt, "depends", "--important", "linux-image-amd64"])
    package = re.search(r"Depends: (linux-image-[0-9]\S*-amd64)", depends)
    if not package:
        raise Missing("apt knows no linux-image-amd64: guests boot Debian's kernel")
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        new = pathlib.Path(temporary)
        run(["apt-get", "-q", *apt, "download", package[1]], cwd=new)
        run(["dpkg-deb", "--extract", next(new.glob("*.deb")), new / "root"])
        (new / "root" / "vmlinux").write_bytes(
            unpack_kernel(next((new / "root" / "boot").glob("vmlinuz-*")).read_bytes()))
        shutil.rmtree(folder, ignore_errors=True)
        (new / "root").rename(folder)
    return folder


def unpack_kernel(image):
    """The ELF file in a bzImage. Booting it spares the guest 2.5 s of unpacking under emulation."""
    setup_bytes = ((image[0x1F1] or 4) + 1) * 512
    # Payload_offset, payload_length of the boot protocol
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[setup_bytes + offset:setup_bytes + offset + length]
    if payload[:6] != b"\xfd7zXZ\0":
        raise Missing("the kernel's payload is not xz")
    return lzma.LZMADecompressor().decompress(payload)


def modules_in_order(kernel):
    """Paths of MODULES and what they depend on, dependencies first."""
    paths = {path.stem.replace("-", "_"): path for path in kernel.glob("lib/modules/**/*.ko")}
    order = []

    def add(name):
        name = name.replace("-", "_")
        if name not in paths:  # built into the kernel
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", paths[name].read_bytes())
        for other in depends[1].decode().split(",") if depends else []:
            if other:
                add(other)
        if paths[name] not in order:
            order.append(paths[name])

    for module in MODULES:
        add(module)
    return order


def cpio(entries):
    """An archive in the format `newc`, which the kernel unpacks: entries are (path, mode,
    bytes).
    """
    parts = []
    for inode, (path, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path) + 1, 0]
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path.encode() + b"\0"
        parts += [head, b"\0" * (-len(head) % 4), data, b"\0" * (-len(data) % 4)]
    return b"".join(parts)


def make_initramfs(cache, kernel):
    require("busybox")
    busybox = pathlib.Path(shutil.which("busybox")).read_bytes()
    if b"\x7fELF" != busybox[:4] or b"/ld-linux" in busybox:
        raise Missing("busybox is not a static program (package busybox-static)")
    applets = run(["busybox", "--list"]).split()
    folders = ["bin", "dev", "modules", "proc", "sys"]
    entries = [(folder, 0o040755, b"") for folder in folders]
    entries += [("init", 0o100755, (HERE / "guest_init").read_bytes()),
                ("bin/busybox", 0o100755, busybox)]
    entries += [(f"bin/{applet}", 0o120777, b"busybox") for applet in applets
                if applet != "busybox"]
    for index, path in enumerate(modules_in_order(kernel)):
        entries.append((f"modules/{index:02}-{path.name}", 0o100644, path.read_bytes()))
    archive = cpio(entries)
    file = cache / f"initramfs-{hashlib.sha256(archive).hexdigest()[:12]}.cpio"
    if not file.exists():
        temporary = file.with_suffix(".new")
        temporary.write_bytes(archive)
        temporary.rename(file)
    return file


def make_root(cache, depends):
    """A squashfs with systemd, an SSH server and `depends`, the packages that the .deb of Larder
    depends on. Its files are root's, so it takes root or sudo."""
    require("mmdebstrap", "mksquashfs")
    as_root = []
    if os.geteuid() != 0:
        as_root = ["sudo", "--non-interactive"]
        require("sudo")
        run([*as_root, "true"])
    packages = sorted({*ROOT_PACKAGES, *depends})
    key = hashlib.sha256(" ".join([*packages, *MASKED_UNITS]).encode()).hexdigest()[:12]
    file = cache / f"root-{key}.squashfs"
    if file.exists():
        return file
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        sources = [
            path for path in ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
            if os.path.exists(path)
        ]
        excluded = [
            f"--dpkgopt=path-exclude=/usr/share/{part}/*"
            for part in ("doc", "man", "locale", "info", "zoneinfo")
        ]
        mask = "; ".join(f'ln -sf /dev/null "$1/etc/systemd/system/{unit}"'
                         for unit in MASKED_UNITS)
        clean = (
            'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/etc/ssh/ssh_host_*; : '
            '>"$1/etc/machine-id"')
        new = pathlib.Path(temporary) / "root.squashfs"
        tree = pathlib.Path(temporary) / "root"
        try:
            run([
                *as_root, "mmdebstrap", "--variant=minbase", "--quiet",
                "--include=" + ",".join(packages), '--aptopt=Apt::Install-Recommends "false"',
                '--aptopt=Acquire::Languages "none"', *excluded, f"--customize-hook={mask}",
                f"--customize-hook={clean}", "bookworm", tree, *sources[:1]
            ])
            run([
                *as_root, "mksquashfs", tree, new, "-noappend", "-quiet", "-no-progress", "-comp",
                "zstd", "-Xcompression-level", "3"
            ])
        finally:
            subprocess.run([*as_root, "rm", "-rf", "--one-file-system", tree], check=False)
        new.rename(file)
    return file


def boot_files(cache):
    """(kernel, initramfs), made on first use."""
    require("qemu-system-x86_64", "apt-get", "dpkg-deb")
    with locked(cache):
        kernel = fetch_kernel(cache)
        return kernel / "vmlinux", make_initramfs(cache, kernel)
