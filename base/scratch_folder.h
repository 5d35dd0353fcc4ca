// ScratchFolder: a new folder that is removed, with all in it, when this object ends.
#pragma once

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/error.h"

namespace larder {

class ScratchFolder {
 public:
  // Makes it in the folder `where`; its name begins with `name`. Throws Error if that fails.
  explicit ScratchFolder(const std::string& name, const std::filesystem::path& where =
                                                      std::filesystem::temp_directory_path())
      : path_(where / (name + "-XXXXXX")) {
    if (mkdtemp(path_.data()) == nullptr)
      throw Error("{}: can't make the folder: {}", path_, std::strerror(errno));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace larder
