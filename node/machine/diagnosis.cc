#include "node/machine/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rows/elementwise.h"
#include "node/options/schedule_file.h"
#include "topology/host.h"
#include "topology/probe.h"

namespace larder::node::inline machine {
namespace {

constexpr std::array<std::string_view, 4> kHealthNames = {"ok", "note", "warn", "bad"};
// A slower hand-over between cores of one package means that something else runs there, or that the
// cores are virtual ones which do not run at the same time.
constexpr double kSlowHandOverNs = 1000;

// The first core of `cores`, other than `from`, for which wanted() holds.
template <typename Wanted>
std::optional<topology::Core> FirstOther(const topology::Topology& machine,
                                         const topology::Core& from, Wanted wanted) {
  for (const topology::Core& core : machine.cores()) {
    if (core.id != from.id && wanted(core)) return core;
  }
  return std::nullopt;
}

Diagnosis OfFinding(const topology::Finding& finding) {
  // "unknown" with advice deserves a warning; without advice there is nothing to do.
  const Health health = finding.verdict == topology::Verdict::kBad ? Health::kBad
                        : finding.verdict == topology::Verdict::kUnknown && !finding.advice.empty()
                            ? Health::kWarn
                            : Health::kOk;
  return {health, finding.what, finding.value, finding.advice};
}

}  // namespace

std::string_view HealthName(Health health) { return kHealthNames[static_cast<size_t>(health)]; }

std::vector<Diagnosis> DiagnoseHost(const topology::Topology& machine) {
  std::vector<Diagnosis> out;
  for (const std::string& warning : machine.warnings())
    out.push_back({Health::kWarn, "topology", warning, ""});
  for (const topology::Finding& finding : topology::InspectHost(machine))
    out.push_back(OfFinding(finding));
  return out;
}

std::vector<Diagnosis> DiagnoseNodes(const pipeline::StagePlan& plan) {
  std::map<NumaNodeId, uint64_t> bytes;
  for (const pipeline::PlanNode& node : plan.nodes)
    bytes[node.id] = node.weight_bytes + node.kv_bytes;
  std::vector<Diagnosis> out;
  for (const topology::Finding& finding : topology::InspectNodes(bytes))
    out.push_back(OfFinding(finding));
  return out;
}

std::vector<Diagnosis> DiagnoseBandwidth(const topology::Topology& machine, double seconds) {
  const auto cpus = machine.CpusOf(machine.PickCores(machine.cores().size()));
  const topology::MachineBandwidth found = topology::MeasureBandwidth(machine, cpus, 0, seconds);
  std::vector<Diagnosis> out;
  const bool caches_help = found.l3_all_gbps > found.dram_all_gbps;
  out.push_back(
      {caches_help ? Health::kOk : Health::kWarn,
       "L3 read",
       fmt::format("{:.1f} GB/s with one thread, {:.1f} GB/s with {} ({:.1f} MB a thread, {})",
                   found.l3_one_gbps, found.l3_all_gbps, found.threads,
                   static_cast<double>(found.l3_bytes_used) * 1e-6, found.l3_pattern),
       caches_help ? ""
                   : "no faster than memory: other work shares the cache or the cores; measure "
                     "again when it is quiet",
       {{"threads", static_cast<double>(found.threads)},
        {"one_thread_gbps", found.l3_one_gbps},
        {"all_threads_gbps", found.l3_all_gbps},
        {"thread_bytes", static_cast<double>(found.l3_bytes_used)}}});
  out.push_back(
      {Health::kOk,
       "memory read",
       fmt::format("{:.1f} GB/s with one thread, {:.1f} GB/s with {} ({})", found.dram_one_gbps,
                   found.dram_all_gbps, found.threads, found.dram_pattern),
       "",
       {{"threads", static_cast<double>(found.threads)},
        {"one_thread_gbps", found.dram_one_gbps},
        {"all_threads_gbps", found.dram_all_gbps}}});
  for (const std::string& note : found.notes)
    out.push_back({Health::kNote, "bandwidth probe", note, ""});
  return out;
}

std::vector<Diagnosis> DiagnoseHandOver(const topology::Topology& machine) {
  std::vector<Diagnosis> out;
  const topology::Core& from = machine.cores()[0];
  auto measure = [&](const char* what, const std::optional<topology::Core>& to) {
    if (!to) return;
    const double ns = topology::HandOverNs(from.cpus.front(), to->cpus.front());
    const bool good = ns > 0 && ns < kSlowHandOverNs;
    out.push_back(
        {good ? Health::kOk : Health::kWarn, what,
         ns > 0 ? fmt::format("{:.0f} ns from CPU {} to CPU {}", ns, from.cpus.front().value,
                              to->cpus.front().value)
                : std::string("not measured: the threads could not be pinned"),
         good ? ""
              : "other work runs on these cores, or a container forbids pinning; see the advice on "
                "isolation"});
    if (ns > 0) out.back().figures = {{"hand_over_ns", ns}};
  };
  measure("hand-over inside an L3 group",
          FirstOther(machine, from, [&](const auto& c) { return c.l3_group == from.l3_group; }));
  measure("hand-over to another L3 group", FirstOther(machine, from, [&](const auto& c) {
            return c.l3_group != from.l3_group && c.package == from.package;
          }));
  measure("hand-over to another package",
          FirstOther(machine, from, [&](const auto& c) { return c.package != from.package; }));
  return out;
}

Diagnosis DiagnoseKernels(kernels::Isa isa) {
  const std::string what = fmt::format("kernels {}", kernels::IsaName(isa));
  if (!kernels::HostHas(isa)) return {Health::kNote, what, "this CPU does not have them", ""};
  try {
    kernels::GetElementwise(isa);
    const kernels::KernelTuning tuning = kernels::DefaultTuning(isa);
    // An even and an odd number of blocks, both with and without adding to existing sums.
    for (const size_t blocks : {size_t{4}, size_t{7}}) {
      for (const bool accumulate : {false, true}) {
        kernels::Gemm::Make(
            isa, {{blocks}, kernels::ActRowBytes(blocks), 64 * kernels::kPanelRows, accumulate},
            tuning);
      }
    }
    const size_t blocks = 2, queries = std::min<size_t>(4, tuning.attention.value_queries);
    kernels::MakeValues(isa, {blocks, queries, blocks * kernels::kBlock}, tuning.attention);
  } catch (const Error& error) {
    return {Health::kBad, what, error.what(),
            "report this with the CPU's model; --isa chooses another set meanwhile"};
  }
  return {Health::kOk, what,
          isa == kernels::BestIsa() ? "equal to the reference to the bit; used here"
                                    : "equal to the reference to the bit",
          ""};
}

Diagnosis DiagnoseSchedules(kernels::Isa isa, const std::string& given) {
  const std::string what = "schedules";
  const std::string tune = "`larder tune -m FILE` finds those that are fastest here, in a minute";
  const std::string path = ChooseSchedules(given);
  if (path.empty())
    return {Health::kNote, what, "not tuned: chosen by the sizes of the caches", tune};
  try {
    const ScheduleFile file = ReadSchedules(path, isa);
    if (file.machine != ScheduleMachine(isa))
      return {Health::kWarn, what, fmt::format("not used: {} is for '{}'", path, file.machine),
              tune};
    std::string inputs;
    for (const auto& tuned : file.products)
      inputs += fmt::format("{}{} inputs of {:.1f} MB {}", inputs.empty() ? "" : ", ",
                            tuned.panel.blocks * kernels::kBlock,
                            static_cast<double>(tuned.weight_bytes) / 1e6, tuned.panel.format.name);
    std::string heads;
    for (const auto& [blocks, group, tuning] : file.attention)
      heads += fmt::format("{}{} query heads of {} elements", heads.empty() ? "" : ", ", group,
                           blocks * kernels::kBlock);
    return {Health::kOk, what,
            fmt::format("tuned for {} a thread; attention for {} a KV head ({}, {})",
                        inputs.empty() ? "no products" : inputs, heads.empty() ? "none" : heads,
                        path, file.tuned_at),
            ""};
  } catch (const Error& error) {
    return {Health::kWarn, what, error.what(), ""};
  }
}

}  // namespace larder::node::machine
