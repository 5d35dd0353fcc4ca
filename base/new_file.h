// NewFile: writes a file that is complete or not there.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "base/error.h"

namespace larder {

// Writes all bytes. Throws an Error that calls the file `name`; some bytes may have been written.
inline void WriteAll(const Descriptor& file, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(file.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw Error("{}: can't write: {}", name, std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(put));
  }
}

// Who may read a new file, before the umask. Files with clients' tokens and texts are kOwner.
enum class FileReaders : mode_t { kAll = 0644, kOwner = 0600 };

// A file that is called PATH.tmp until Commit() renames it; without Commit() the destructor removes
// it. If something has that name already (from a killed process, or put there by someone), it is
// removed first: it is never written to, and a link is never followed.
class NewFile {
 public:
  explicit NewFile(const std::string& path, FileReaders readers = FileReaders::kAll)
      : path_(path), temporary_(path + ".tmp") {
    // A rename onto a device or a pipe would replace it.
    struct stat found;
    if (::stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode)) {
      throw Error("{}: exists and is not a regular file; name another", path);
    }
    if (::unlink(temporary_.c_str()) != 0 && errno != ENOENT)
      throw Error("{}: can't replace it: {}", temporary_, std::strerror(errno));
    fd_ =
        Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                          static_cast<mode_t>(readers)));
    if (!fd_) throw Error("{}: can't create: {}", temporary_, std::strerror(errno));
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_ && IsOurs()) ::unlink(temporary_.c_str());
  }
  void Write(const char* data, size_t bytes) { WriteAll(fd_, {data, bytes}, temporary_); }
  // The file gets its name after its bytes are on the disk, and the name is on the disk when this
  // returns. So a power cut leaves a complete file or none, never a file of zeros.
  void Commit() {
    if (!IsOurs()) {
      fd_.Reset();
      throw Error("{}: another process writes the same file; write it again", temporary_);
    }
    int cause = ::fdatasync(fd_.get()) == 0 ? 0 : errno;
    if (::close(fd_.Take()) != 0 && cause == 0) cause = errno;
    if (cause == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) cause = errno;
    if (cause != 0) {
      ::unlink(temporary_.c_str());
      throw Error("{}: can't finish writing: {}", path_, std::strerror(cause));
    }
    SyncFolder();
  }

 private:
  // Whether the temporary name still refers to the file that is open here.
  bool IsOurs() const {
    struct stat open, named;
    return ::fstat(fd_.get(), &open) == 0 && ::lstat(temporary_.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
  }
  void SyncFolder() const {
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some file systems cannot sync a folder (EINVAL), and a folder may be writable but not
    // readable. The file is complete in both cases.
    const bool failed = fd && ::fsync(fd.get()) != 0 && errno == EIO;
    if (failed) throw Error("{}: can't write the folder it is in: {}", path_, std::strerror(EIO));
  }

  std::string path_, temporary_;
  Descriptor fd_;
};

}  // namespace larder
