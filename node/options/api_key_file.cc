#include "node/options/api_key_file.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "serving/admission/api_keys.h"

namespace larder::node::inline options {

ApiKeyFile::ApiKeyFile(std::vector<std::string> given, std::string path)
    : given_(std::move(given)), path_(std::move(path)) {
  for (const std::string& key : given_) {
    const std::string why = serving::WhyNotKey(key);
    if (key.empty()) throw CLI::ValidationError("--api-key", why + " (is a variable not set?)");
    if (!why.empty()) throw CLI::ValidationError("--api-key", why);
  }
}

// Whoever may write the file lets himself in. Reading is warned of only: secrets of containers are
// files of mode 0444 in a place that nobody else sees.
void ApiKeyFile::CheckMode() const {
  struct stat about {};
  if (::stat(path_.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return;
  if ((about.st_mode & 022) != 0)
    throw Error(
        "{}: others may write it (mode {:04o}): expected keys that only their owner can change; "
        "chmod 600 {}",
        path_, about.st_mode & 07777, path_);
  if ((about.st_mode & 044) != 0)
    spdlog::warn("{}: others on this machine may read the keys (mode {:04o}); chmod 600 {}", path_,
                 about.st_mode & 07777, path_);
}

std::vector<std::string> ApiKeyFile::Read() {
  std::vector<std::string> keys = given_;
  if (path_.empty()) return keys;
  read_ = seen_ = Look();
  CheckMode();
  std::ifstream file(path_);
  if (!file)
    throw Error("{}: can't be read; give --api-key-file a file with one key a line", path_);
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    keys.push_back(line.substr(begin, end - begin + 1));
    if (const std::string why = serving::WhyNotKey(keys.back()); !why.empty())
      throw CLI::ValidationError("--api-key-file", fmt::format("{}:{}: {}", path_, number, why));
  }
  if (keys.size() == given_.size()) throw Error("{}: has no key; expected one per line", path_);
  return keys;
}

std::optional<std::vector<std::string>> ApiKeyFile::Changed(bool asked) {
  if (path_.empty()) return std::nullopt;
  const Version now = Look();
  // The file may be half written: unless asked, read it only when two looks in a row agree.
  const bool settled = now == std::exchange(seen_, now);
  if (!asked && (now == read_ || !settled)) return std::nullopt;
  try {
    std::vector<std::string> keys = Read();
    spdlog::warn("{}: reloaded, {} keys", path_, keys.size());
    return keys;
  } catch (const std::exception& error) {
    spdlog::error("the keys are unchanged: {}", error.what());
    return std::nullopt;
  }
}

ApiKeyFile::Version ApiKeyFile::Look() const {
  struct stat found {};
  if (stat(path_.c_str(), &found) != 0) return {};
  return {found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

}  // namespace larder::node::options
