// OwnFolder: a folder that one process of one user has to itself, from its construction on.
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
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"

namespace larder {

// Opens a folder that is there, of this user and with none of the mode's bits `forbidden`. Throws
// Error, which ends with `why` if it is another's or open to others.
inline Descriptor OpenOwnFolder(const std::string& path, mode_t forbidden, const char* why) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat about {};
  if (!folder || ::fstat(folder.get(), &about) != 0)
    throw Error("{}: can't open the folder: {}", path, std::strerror(errno));
  if (about.st_uid != ::geteuid() || (about.st_mode & forbidden) != 0) {
    throw Error("{}: the folder is of user {} with mode {:o}; expected one of user {} {}", path,
                about.st_uid, about.st_mode & 0777, ::geteuid(), why);
  }
  return folder;
}

class OwnFolder {
 public:
  // Makes it, with the folders above it, for its user only, or takes one that is there: of this
  // user, and with none of the mode's bits `forbidden`. Throws Error, which ends with `why`.
  OwnFolder(const std::string& path, mode_t forbidden, const char* why) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      throw Error("{}: can't make the folder: {}", path, std::strerror(errno));
    OpenOwnFolder(path, forbidden, why);
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
