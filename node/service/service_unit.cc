#include "node/service/service_unit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/memory.h"

namespace larder::node::inline service {
namespace {

// Below this size the kernel finds transparent huge pages easily, and a reservation that outlives
// the process costs more than it gains.
constexpr uint64_t kWorthReservingBytes = uint64_t{256} << 20;

template <typename Id>
std::string Ranges(const std::vector<Id>& ids) {
  std::vector<int32_t> numbers;
  numbers.reserve(ids.size());
  for (const Id id : ids) numbers.push_back(id.value);
  return RangeList(std::move(numbers));
}

std::string Megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

// Reserves the pages of all sockets of the node, so that it does not matter which of them starts
// first; never lowers an existing reservation.
std::string ReservePages(int32_t node, uint64_t pages) {
  const std::string file =
      fmt::format("/sys/devices/system/node/node{}/hugepages/hugepages-2048kB/nr_hugepages", node);
  return fmt::format("ExecStartPre=-+/bin/sh -c '[ \"$(cat {0})\" -ge {1} ] || echo {1} >{0}'\n",
                     file, pages);
}

std::string HugePages(const UnitFacts& facts) {
  std::string out;
  for (const auto& [node, memory] : facts.node_memory) {
    if (facts.resident_bytes < kWorthReservingBytes ||
        memory.resident_bytes > memory.memory_bytes / 2)
      continue;
    const uint64_t pages =
        CeilDiv(memory.resident_bytes + memory.resident_bytes / 64, kHugePageBytes);
    out += fmt::format(
        "# {} of this server's sockets lie on node {}; they are reserved as 2 MB pages before the "
        "memory is fragmented, since each\n"
        "# TLB miss stalls a core. \"+\": as root. \"-\": if too few are left, transparent huge "
        "pages do.\n{}",
        Megabytes(memory.resident_bytes), node, ReservePages(node, pages));
  }
  return out;
}

}  // namespace

std::string RangeList(std::vector<int32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    out += fmt::format("{}{}", out.empty() ? "" : ",", numbers[i]);
    if (end > i + 1) out += fmt::format("-{}", numbers[end - 1]);
    i = end;
  }
  return out;
}

std::string UnitDropIn(const UnitFacts& facts) {
  std::vector<CpuId> allowed = facts.cpus;
  allowed.insert(allowed.end(), facts.link_cpus.begin(), facts.link_cpus.end());
  const std::string cpus = Ranges(facts.cpus), nodes = Ranges(facts.nodes);
  std::string out = fmt::format(
      "# Drop-in of larder@{0}.service on server {1}, computed by `larder unit --manifest {2} "
      "--socket {0}`.\n"
      "# `larder-cluster push` rewrites it when the manifest, the model or the machine has "
      "changed.\n",
      facts.socket, facts.server, facts.manifest);
  if (!facts.before.empty()) {
    out +=
        "\n[Unit]\n# It connects to these sockets of its server; they start before it and stop "
        "after it.\nAfter=";
    for (const std::string& name : facts.before)
      out += fmt::format("{}larder@{}.service", &name == &facts.before[0] ? "" : " ", name);
    out += "\n";
  }
  out += fmt::format(
      "\n[Service]\n"
      "# Role {}, cores = \"{}\": {} threads. No thread of this socket ever runs on another "
      "socket's cores, and its memory\n"
      "# is placed by those that are pinned here.{}\n"
      "AllowedCPUs={}\n"
      "# The same CPUs for what starts before the threads are pinned.\n"
      "CPUAffinity={}\n",
      facts.role, facts.cores, facts.cpus.size(),
      facts.link_cpus.empty()
          ? std::string()
          : fmt::format(" Links to another server, for attention, have {}, which no socket has.",
                        Ranges(facts.link_cpus)),
      Ranges(allowed), cpus);
  if (!nodes.empty()) {
    out += fmt::format(
        "# Its memory{} must be near these cores: memory of another node costs twice the time, and "
        "failing at start beats\n"
        "# that.\n"
        "NUMAPolicy=bind\nNUMAMask={}\n",
        facts.resident_bytes != 0 ? fmt::format(" ({})", Megabytes(facts.resident_bytes)) : "",
        nodes);
  }
  if (facts.role == pipeline::RoleName(pipeline::Role::kServing)) {
    out +=
        "# `systemctl reload` reloads the files of clients' keys; other sockets have none.\n"
        "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'\n";
  }
  return out + NetworkLines(facts.network) + HugePages(facts);
}

}  // namespace larder::node::service
