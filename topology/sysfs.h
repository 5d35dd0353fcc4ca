// Small readers of /proc and /sys. What cannot be read is returned as empty: no setting there is
// essential.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ids.h"

namespace larder::topology {

// The first line without its end; empty if the file cannot be read.
std::string ReadLine(const std::string& path);
std::string ReadWhole(const std::string& path);
// The leading unsigned number of the first line.
std::optional<uint64_t> ReadNumber(const std::string& path);
// The value of "key: 123 kB" (also "Node 0 key: 123 kB", and "key 123" in bytes as in memory.stat),
// in bytes.
std::optional<uint64_t> FindBytes(const std::string& text, const std::string& key);
// "always [madvise] never" -> "madvise"; a text without brackets is returned as it is.
std::string BracketedChoice(const std::string& text);
// Memory that this process could still get: the least that the machine, its memory cgroup and the
// cgroups above that one still give.
std::optional<uint64_t> AvailableMemoryBytes(const std::string& root = "");

// /sys/devices/system/node/node1
std::string NodeFolder(NumaNodeId node);
// Memory that the node could give: its free memory and its page cache. nullopt if it is not known,
// and on a machine of one node: the machine's figure is then the same, and it is right even where
// the node's leaves out hot-plugged memory (seen in a guest).
std::optional<uint64_t> AvailableNodeBytes(NumaNodeId node, const std::string& root = "");

// Whether `folder` (/sys/devices/system/node) is there and shows no node, as in some containers.
bool ShowsNoNode(const std::string& folder);

}  // namespace larder::topology
