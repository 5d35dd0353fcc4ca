#include "topology/host.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/memory.h"
#include "topology/sysfs.h"

namespace larder::topology {
namespace {

// The value of "key : value" in /proc/cpuinfo; the first CPU's.
std::string CpuInfo(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    const size_t colon = line.find(':');
    if (line.rfind(key, 0) != 0 || colon == std::string::npos) continue;
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

bool HasWord(const std::string& text, const std::string& word) {
  std::istringstream words(text);
  std::string w;
  while (words >> w) {
    if (w == word) return true;
  }
  return false;
}

Finding CpuModel(const std::string& root) {
  const std::string name = CpuName(root);
  return {"CPU", name, name == "unknown" ? Verdict::kUnknown : Verdict::kGood, ""};
}

Finding L3(const Topology& topology) {
  if (topology.total_l3_bytes() == 0) {
    return {"L3", "none described", Verdict::kUnknown,
            "residency cannot be planned without the caches' sizes; in a virtual machine, pass the "
            "host's caches through"};
  }
  return {"L3",
          fmt::format("{} group(s), {} MB in all", topology.l3_groups().size(),
                      topology.total_l3_bytes() >> 20),
          Verdict::kGood, ""};
}

Finding TransparentHugePages(const std::string& root) {
  const std::string what = "transparent huge pages";
  const std::string choice =
      BracketedChoice(ReadLine(root + "/sys/kernel/mm/transparent_hugepage/enabled"));
  if (choice.empty()) return {what, "unknown", Verdict::kUnknown, ""};
  if (choice == "madvise" || choice == "always") return {what, choice, Verdict::kGood, ""};
  return {what, choice, Verdict::kBad,
          "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding ReservedHugePages(const std::string& root) {
  const std::string what = "free reserved 2 MB pages";
  const auto free = ReadNumber(root + "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  if (!free) return {what, "unknown", Verdict::kUnknown, ""};
  const std::string value = fmt::format("{} ({} MB)", *free, *free * 2);
  if (*free > 0) return {what, value, Verdict::kGood, ""};
  return {what, value, Verdict::kUnknown,
          "not needed where transparent huge pages work; to be sure of huge pages: sysctl "
          "vm.nr_hugepages=N with N x 2 MB above the model's size"};
}

Finding Governor(const Topology& topology, const std::string& root) {
  const std::string what = "frequency governor";
  std::string seen;
  for (const Core& core : topology.cores()) {
    const std::string governor = ReadLine(fmt::format(
        "{}/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", root, core.cpus.front().value));
    if (governor.empty())
      return {what, "unknown (not shown here, as in most virtual machines)", Verdict::kUnknown, ""};
    if (!HasWord(seen, governor)) seen += (seen.empty() ? "" : " ") + governor;
  }
  if (seen == "performance") return {what, seen, Verdict::kGood, ""};
  return {what, seen, Verdict::kBad, "cpupower frequency-set -g performance"};
}

Finding Isolation(const std::string& root) {
  const std::string text = ReadLine(root + "/sys/devices/system/cpu/isolated");
  if (ParseCpuList(text).empty()) {
    return {"isolated CPUs", "none", Verdict::kUnknown,
            "for a machine of Larder's own: boot with isolcpus=... nohz_full=..., or pass "
            "--isolated if nothing else runs"};
  }
  return {"isolated CPUs", text, Verdict::kGood, ""};
}

Finding MemLock() {
  rlimit limit{};
  const std::string what = "locked memory limit";
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {what, "unknown", Verdict::kUnknown, ""};
  if (limit.rlim_cur == RLIM_INFINITY) return {what, "unlimited", Verdict::kGood, ""};
  return {
      what, fmt::format("{} MB", limit.rlim_cur >> 20), Verdict::kBad,
      "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity), so that no weight is ever paged out"};
}

Finding Swap(const std::string& root) {
  const auto total = FindBytes(ReadWhole(root + "/proc/meminfo"), "SwapTotal");
  if (!total) return {"swap", "unknown", Verdict::kUnknown, ""};
  if (*total == 0) return {"swap", "none", Verdict::kGood, ""};
  return {"swap", fmt::format("{} MB", *total >> 20), Verdict::kBad,
          "swapoff -a, or lock the memory"};
}

Finding Smt(const Topology& topology) {
  const size_t cores = topology.cores().size();
  if (topology.cpu_count() == cores)
    return {"SMT", "off, or siblings not ours", Verdict::kGood, ""};
  return {"SMT", fmt::format("on: {} CPUs on {} cores", topology.cpu_count(), cores),
          Verdict::kUnknown, "Larder leaves the siblings idle; keep other work off them"};
}

Finding Virtualisation(const std::string& root) {
  const std::string flags = CpuInfo(ReadWhole(root + "/proc/cpuinfo"), "flags");
  if (flags.empty()) return {"virtualisation", "unknown", Verdict::kUnknown, ""};
  if (!HasWord(flags, "hypervisor")) return {"virtualisation", "none", Verdict::kGood, ""};
  std::string product = ReadLine(root + "/sys/class/dmi/id/product_name");
  return {
      "virtualisation", "virtual machine" + (product.empty() ? "" : " (" + product + ")"),
      Verdict::kUnknown,
      "neighbours may share the L3 and the memory: trust the measured bandwidths, not the sizes"};
}

Finding Busy(const Topology& topology, const std::string& root) {
  std::istringstream line(ReadLine(root + "/proc/loadavg"));
  double load = -1;
  if (!(line >> load) || load < 0) return {"load", "unknown", Verdict::kUnknown, ""};
  const size_t cpus = topology.cpu_count();
  const std::string value = fmt::format("{:.2f} over the last minute, on {} CPUs", load, cpus);
  // Bad if an eighth of the machine, or half a CPU of a small one, is busy: the slowest thread sets
  // the pace.
  if (load <= std::max(0.5, 0.125 * static_cast<double>(cpus)))
    return {"load", value, Verdict::kGood, ""};
  return {"load", value, Verdict::kBad,
          "other processes are busy: stop them, or give Larder fewer threads (-t)"};
}

}  // namespace

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kBad:
      return "bad";
    case Verdict::kUnknown:
      return "unknown";
  }
  return "unknown";
}

std::vector<CpuId> ParseCpuList(const std::string& text) {
  constexpr long kMaxCpu = 1 << 16;
  std::vector<CpuId> cpus;
  std::istringstream parts(text);
  std::string part;
  while (std::getline(parts, part, ',')) {
    std::istringstream range(part);
    long first = -1, last = -1;
    char dash = 0;
    if (!(range >> first)) return {};
    last = first;
    if (range >> dash && (dash != '-' || !(range >> last))) return {};
    if (!(range >> std::ws).eof() || first < 0 || last < first || last > kMaxCpu) return {};
    for (long cpu = first; cpu <= last; ++cpu) cpus.push_back(CpuId(static_cast<int32_t>(cpu)));
  }
  return cpus;
}

std::vector<CpuId> IsolatedCpus(const std::string& root) {
  return ParseCpuList(ReadLine(root + "/sys/devices/system/cpu/isolated"));
}

std::string CpuName(const std::string& root) {
  const std::string text = ReadWhole(root + "/proc/cpuinfo");
  std::string name = CpuInfo(text, "model name");
  if (name.empty()) return "unknown";
  const std::string family = CpuInfo(text, "cpu family"), model = CpuInfo(text, "model\t"),
                    stepping = CpuInfo(text, "stepping");
  if (!family.empty() && !model.empty())
    name += fmt::format(", family {} model {}{}", family, model,
                        stepping.empty() ? "" : " stepping " + stepping);
  return name;
}

std::vector<Finding> InspectHost(const Topology& topology, const std::string& root) {
  return {CpuModel(root),
          L3(topology),
          TransparentHugePages(root),
          ReservedHugePages(root),
          Governor(topology, root),
          Isolation(root),
          MemLock(),
          Swap(root),
          Smt(topology),
          Virtualisation(root),
          Busy(topology, root)};
}

std::vector<Finding> InspectNodes(const std::map<NumaNodeId, uint64_t>& bytes,
                                  const std::string& root) {
  std::vector<Finding> findings;
  for (const auto& [node, needed] : bytes) {
    const std::optional<uint64_t> available = AvailableNodeBytes(node, root);
    if (!available) continue;
    const bool enough = needed <= *available;
    findings.push_back(
        {fmt::format("memory of NUMA node {}", node.value),
         fmt::format("{:.2f} GB available for {:.2f} GB of its threads' weights and KV",
                     *available * 1e-9, needed * 1e-9),
         enough ? Verdict::kGood : Verdict::kBad,
         enough ? "" : "free memory on that node, take fewer --kv-tokens, or cores of more nodes"});
  }
  return findings;
}

}  // namespace larder::topology
