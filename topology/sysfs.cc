#include "topology/sysfs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace larder::topology {

std::string ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::istringstream line(ReadLine(path));
  uint64_t number = 0;
  if (line >> number) return number;
  return std::nullopt;
}

std::optional<uint64_t> FindBytes(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string word;
    while (words >> word) {
      if (word != key && word != key + ":") continue;
      uint64_t number = 0;
      std::string unit;
      if (!(words >> number)) break;
      words >> unit;
      return unit == "kB" ? number * 1024 : number;
    }
  }
  return std::nullopt;
}

std::string BracketedChoice(const std::string& text) {
  const size_t open = text.find('[');
  const size_t close = text.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return text;
  return text.substr(open + 1, close - open - 1);
}

namespace {

// What a memory cgroup still gives; nullopt if it has no limit of its own.
std::optional<uint64_t> LeftInGroup(const std::string& group) {
  // "max" is not a number: no limit
  const std::optional<uint64_t> limit = ReadNumber(group + "/memory.max");
  const std::optional<uint64_t> used = ReadNumber(group + "/memory.current");
  if (!limit || !used) return std::nullopt;
  // the kernel can drop it
  const uint64_t files = FindBytes(ReadWhole(group + "/memory.stat"), "file").value_or(0);
  const uint64_t kept = *used - std::min(*used, files);
  return *limit - std::min(*limit, kept);
}

}  // namespace

std::optional<uint64_t> AvailableMemoryBytes(const std::string& root) {
  std::optional<uint64_t> available = FindBytes(ReadWhole(root + "/proc/meminfo"), "MemAvailable");
  // cgroup 2: the line "0::/path" names our group under /sys/fs/cgroup; limits of the groups above
  // it hold too
  std::istringstream groups(ReadWhole(root + "/proc/self/cgroup"));
  std::string line;
  while (std::getline(groups, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
      if (path[0] != '/') break;
      const std::optional<uint64_t> left = LeftInGroup(root + "/sys/fs/cgroup" + path);
      if (left) available = std::min(available.value_or(*left), *left);
    }
  }
  return available;
}

std::string NodeFolder(NumaNodeId node) {
  return fmt::format("/sys/devices/system/node/node{}", node.value);
}

std::optional<uint64_t> AvailableNodeBytes(NumaNodeId node, const std::string& root) {
  if (ReadLine(root + "/sys/devices/system/node/online").find_first_of(",-") == std::string::npos)
    return std::nullopt;
  const std::string text = ReadWhole(root + NodeFolder(node) + "/meminfo");
  const auto free = FindBytes(text, "MemFree");
  if (!free) return std::nullopt;
  const uint64_t files = FindBytes(text, "FilePages").value_or(0);
  const uint64_t shared = FindBytes(text, "Shmem").value_or(0);
  return *free + files - std::min(files, shared);
}

bool ShowsNoNode(const std::string& folder) {
  std::error_code ec;
  const std::filesystem::directory_iterator entries(folder, ec);
  if (ec) return false;
  return std::none_of(begin(entries), end(entries), [](const auto& entry) {
    const std::string name = entry.path().filename();
    return name.starts_with("node") && name.find_first_of("0123456789") == 4;
  });
}

}  // namespace larder::topology
