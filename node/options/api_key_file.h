// ApiKeyFile: the keys that `larder serve` was given, on the command line and in a file that may change while
// it runs. One thread at a time.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace larder::node {

class ApiKeyFile {
 public:
  // `path` may be empty: there are no others.
  ApiKeyFile(std::vector<std::string> given, std::string path);
  // All keys. Throws Error: the file can't be read; CLI::ValidationError (wrong usage): a key that is none.
  std::vector<std::string> Read();
  // All keys if the file is another than at the last Read, or if `asked`: since SIGHUP came. A file that is
  // no good is a line in the log, and the keys stay as they are.
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

  std::vector<std::string> given_;
  std::string path_;
  Version read_, seen_;
};

}  // namespace larder::node
