// Folders with clients' tokens and texts, which only their user may read (mode 0700); and
// OwnFolder, a folder that one process has to itself while the object lives.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/descriptor.h"
#include "base/error.h"

namespace larder {

// Opens an existing folder. Throws Error unless it belongs to this user and is closed to all
// others.
inline Descriptor OpenOwnFolder(const std::string& path) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (!folder || ::fstat(folder.get(), &about) != 0)
    throw Error("{}: can't open the folder: {}", path, std::strerror(errno));
  if (about.st_uid != ::geteuid() || (about.st_mode & 077) != 0) {
    throw Error(
        "{}: the folder is of user {} with mode {:o}; expected one of user {} that nobody else may "
        "read or write: it holds clients' prompts and answers; chmod 700 makes it so",
        path, about.st_uid, about.st_mode & 0777, ::geteuid());
  }
  return folder;
}

// Makes a folder and those above it, for this user only; existing ones stay as they are. Throws
// Error.
inline void MakeFolder(const std::string& path) {
  std::filesystem::path at;
  int cause = 0;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    at /= part;
    cause = ::mkdir(at.c_str(), 0700) == 0 || errno == EEXIST ? 0 : errno;
  }
  if (cause != 0) throw Error("{}: can't make the folder: {}", path, std::strerror(cause));
}

// Opens the folder; makes it first if it is missing. Throws Error.
inline Descriptor MakeOwnFolder(const std::string& path) {
  MakeFolder(path);
  return OpenOwnFolder(path);
}

class OwnFolder {
 public:
  // Like MakeOwnFolder. Throws Error, also if another process has the folder.
  explicit OwnFolder(const std::string& path) {
    MakeOwnFolder(path);
    const std::string lock = path + "/lock";
    lock_ = Descriptor(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_) throw Error("{}: can't open: {}", lock, std::strerror(errno));
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
      throw Error("{}: another larder uses this folder; name another for this one", path);
  }

 private:
  Descriptor lock_;
};

}  // namespace larder
