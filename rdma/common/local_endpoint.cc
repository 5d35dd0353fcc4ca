#include "rdma/common/local_endpoint.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"

namespace larder::rdma::inline common {
namespace {

constexpr size_t kMaxNameBytes = 100;
// one byte is the zero at the end (abstract names: at the start)
constexpr size_t kMaxPathBytes = sizeof(sockaddr_un::sun_path) - 1;

// Whether only its owner (and root) can make and remove names in the folder.
bool IsPrivate(const struct stat& folder, uid_t user) {
  return S_ISDIR(folder.st_mode) && folder.st_uid == user &&
         (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// The process that listens on an abstract name, found in /proc, because connecting to ask would
// take the place of the real peer. Only processes that this user may inspect are found.
std::optional<pid_t> OwnerOfAbstract(const std::string& name) {
  std::ifstream sockets("/proc/net/unix");
  std::string link;
  for (std::string line; link.empty() && std::getline(sockets, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (path == "@" + name && state == "01") link = "socket:[" + inode + "]";  // 01: listens
  }
  if (link.empty()) return std::nullopt;
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const auto& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    fs::directory_iterator open(process.path() / "fd", ignored), end;
    for (; !ignored && open != end; open.increment(ignored)) {
      std::error_code gone;
      if (fs::read_symlink(open->path(), gone) == link) return std::stoi(pid);
    }
  }
  return std::nullopt;
}

[[noreturn]] void ThrowInUse(const std::string& what, const std::string& name,
                             std::optional<pid_t> owner, bool abstract) {
  throw Error(
      "{} {}: in use by {}: is this socket already running? Stop it first, or give this run a name "
      "of its own{}",
      what, name, owner ? fmt::format("pid {}", *owner) : "another process",
      abstract && !owner
          ? " (if it is another user's: set RUNTIME_DIRECTORY to a folder of yours with mode 0700, "
            "which keeps names apart)"
          : "");
}

// Takes the lock of a path; the file holds the owner's pid. The file is made again if its last
// owner removed it between our open and our lock.
Descriptor Lock(const std::string& what, const std::string& name, const std::string& path) {
  const std::string file = path + ".lock";
  for (;;) {
    Descriptor lock(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock) throw Error("{} {}: {}: {}", what, name, file, std::strerror(errno));
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      char text[16] = {};
      const ssize_t got = pread(lock.get(), text, sizeof(text) - 1, 0);
      pid_t pid = 0;  // stays 0 if the file says none
      std::from_chars(text, text + std::max<ssize_t>(got, 0), pid);
      ThrowInUse(what, name, pid > 0 ? std::optional(pid) : std::nullopt, false);
    }
    struct stat mine = {}, there = {};
    if (fstat(lock.get(), &mine) != 0 || stat(file.c_str(), &there) != 0 ||
        mine.st_ino != there.st_ino)
      continue;
    const std::string pid = std::to_string(getpid());
    if (ftruncate(lock.get(), 0) != 0 || pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
      throw Error("{} {}: {}: {}", what, name, file, std::strerror(errno));
    return lock;
  }
}

}  // namespace

std::string RuntimeFolder() {
  const char* given = std::getenv("RUNTIME_DIRECTORY");
  std::string folder = given == nullptr ? "" : given;
  folder = folder.substr(0, folder.find(':'));  // the first, if systemd made several
  struct stat found = {};
  if (folder.empty()) {
    return stat(kRuntimeFolder, &found) == 0 && IsPrivate(found, geteuid()) ? kRuntimeFolder : "";
  }
  if (stat(folder.c_str(), &found) != 0)
    throw Error("RUNTIME_DIRECTORY={}: {}; expected a folder of this user", folder,
                std::strerror(errno));
  if (!IsPrivate(found, geteuid())) {
    throw Error(
        "RUNTIME_DIRECTORY={}: belongs to user {}, mode {:o}; expected user {} and mode 700",
        folder, found.st_uid, found.st_mode & 07777, geteuid());
  }
  return folder;
}

std::string FileOfName(const std::string& name) {
  std::string file;
  for (const char c : name) {
    if (IsPlain(c)) {
      file += c;
    } else if (c == '/') {
      file += '+';
    } else {
      file += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return file;
}

std::string NameOfFile(const std::string& file) {
  std::string name;
  for (size_t i = 0; i < file.size(); ++i) {
    if (file[i] == '%' && i + 2 < file.size()) {
      name += static_cast<char>(std::strtol(file.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      name += file[i] == '+' ? '/' : file[i];
    }
  }
  return name;
}

LocalAddress AddressOf(const std::string& name, const std::string& folder) {
  LocalAddress address;
  address.value.sun_family = AF_UNIX;
  if (!folder.empty()) address.path = folder + "/" + FileOfName(name);
  const std::string& shown = address.path.empty() ? name : address.path;
  if (name.empty() || name.size() > kMaxNameBytes || shown.size() > kMaxPathBytes) {
    throw Error(
        "\"{}\": expected a socket's name of 1 to {} bytes, {} with its folder; shorten the "
        "manifest's name",
        shown, kMaxNameBytes, kMaxPathBytes);
  }
  // An abstract name starts with a zero byte; the address's length gives its end.
  std::memcpy(address.value.sun_path + (address.path.empty() ? 1 : 0), shown.data(), shown.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + shown.size());
  return address;
}

ucred PeerOf(int fd) {
  ucred peer = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = static_cast<gid_t>(-1)};
  socklen_t bytes = sizeof(peer);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  return peer;
}

LocalListener::LocalListener(const std::string& what, const std::string& name, int type,
                             int backlog) {
  const LocalAddress address = AddressOf(name);
  fd_ = Descriptor(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_) throw Error("{} {}: no socket: {}", what, name, std::strerror(errno));
  if (!address.path.empty()) {
    lock_ = Lock(what, name, address.path);
    unlink(address.path.c_str());  // a crash left it: we have the lock, so no process listens
  }
  if (bind(fd_.get(), address.get(), address.bytes) != 0) {
    if (errno == EADDRINUSE) ThrowInUse(what, name, OwnerOfAbstract(name), true);
    throw Error("{} {}: cannot take this name: {}", what, name, std::strerror(errno));
  }
  path_ = address.path;
  if (listen(fd_.get(), backlog) != 0) {
    const int error = errno;
    Remove();
    throw Error("{} {}: cannot listen: {}", what, name, std::strerror(error));
  }
}

LocalListener::~LocalListener() { Remove(); }

LocalListener::LocalListener(LocalListener&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      lock_(std::move(other.lock_)),
      fd_(std::move(other.fd_)) {}

LocalListener& LocalListener::operator=(LocalListener&& other) noexcept {
  if (this != &other) {
    Remove();
    path_ = std::exchange(other.path_, {});
    lock_ = std::move(other.lock_);
    fd_ = std::move(other.fd_);
  }
  return *this;
}

// Runs before the lock is released, which lets the next owner in.
void LocalListener::Remove() {
  if (path_.empty()) return;
  unlink(path_.c_str());
  unlink((path_ + ".lock").c_str());
  path_.clear();
}

}  // namespace larder::rdma::common
