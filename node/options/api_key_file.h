// ApiKeyFile: the API keys of `larder serve`, from the command line and from a file that may change
// while the server runs. For one thread at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace larder::node::inline options {

class ApiKeyFile {
 public:
  // `path` may be empty: there is no file.
  ApiKeyFile(std::vector<std::string> given, std::string path);
  // All keys. Throws Error if the file can't be read or others can write it, CLI::ValidationError
  // (wrong usage) for an invalid key.
  std::vector<std::string> Read();
  // All keys if the file has changed since the last Read, or if `asked` (SIGHUP came). A file with
  // an error is logged, and the keys stay as they are.
  std::optional<std::vector<std::string>> Changed(bool asked);

 private:
  struct Version {
    ino_t inode = 0;
    off_t bytes = 0;
    time_t seconds = 0;
    long nanoseconds = 0;
    bool operator==(const Version&) const = default;
  };
  Version Look() const;
  void CheckMode() const;

  std::vector<std::string> given_;
  std::string path_;
  Version read_, seen_;
};

}  // namespace larder::node::options
