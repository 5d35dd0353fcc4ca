#include "pipeline/prediction/speeds.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace larder::pipeline::inline prediction {
namespace {

constexpr std::array<SpeedInput, Speeds::kInputs> kSpeedInputs = {{
    {"l3_core_gbps", "--l3-gbps", "GB/s at which each core reads L3 while all cores do",
     &Speeds::l3_core_gbps, true, 1.5},
    {"dram_socket_gbps", "--dram-gbps", "GB/s at which a socket reads memory",
     &Speeds::dram_socket_gbps, true, 1.25},
    {"dram_core_gbps", "--dram-core-gbps", "GB/s at which a core reads it at most",
     &Speeds::dram_core_gbps, true, 1.5},
    {"core_gops", "--core-gops", "INT8 GOP/s of a core", &Speeds::core_gops, true, 1.5},
    {"element_ns", "--element-ns", "nanoseconds of a core for norm and quantisation of an element",
     &Speeds::element_ns, false, 2},
    {"append_ns", "--append-ns",
     "nanoseconds of a core for an element that is rotated or appended to the KV cache",
     &Speeds::append_ns, false, 2},
    {"attention_element_ns", "--attention-element-ns",
     "nanoseconds of a core for a query head and an element of a key and a value",
     &Speeds::attention_element_ns, false, 2},
    {"attention_position_ns", "--attention-position-ns",
     "nanoseconds of a core for a query head and a position", &Speeds::attention_position_ns, false,
     2},
    {"layer_sync_us", "--sync-us", "microseconds of barriers per layer", &Speeds::layer_sync_us,
     false, 2},
    {"core_hop_us", "--core-hop-us", "microseconds for a cache line between cores of a package",
     &Speeds::core_hop_us, false, 2},
    {"package_hop_us", "--package-hop-us", "microseconds for a cache line between packages",
     &Speeds::package_hop_us, false, 2},
    {"step_us", "--step-us", "microseconds that surround a step", &Speeds::step_us, false, 2},
    {"link_latency_us", "--link-us", "latency of a link in microseconds", &Speeds::link_latency_us,
     false, 2},
    {"link_gbps", "--link-gbps", "GB/s of a link", &Speeds::link_gbps, true, 1.5},
}};

constexpr std::array<const char*, 3> kSourceNames = {"assumed", "given", "measured"};

}  // namespace

std::span<const SpeedInput> SpeedInputs() { return kSpeedInputs; }

size_t IndexOf(double Speeds::*input) {
  const auto at = std::ranges::find(kSpeedInputs, input, &SpeedInput::value);
  LARDER_CHECK(at != kSpeedInputs.end());
  return static_cast<size_t>(at - kSpeedInputs.begin());
}

const char* Name(SpeedSource source) { return kSourceNames.at(static_cast<size_t>(source)); }

SpeedSource Speeds::SourceOf(double Speeds::*input) const { return sources.at(IndexOf(input)); }

void Speeds::Set(double Speeds::*input, double value, SpeedSource source) {
  this->*input = value;
  sources.at(IndexOf(input)) = source;
}

bool Speeds::AnyOf(SpeedSource source) const { return std::ranges::count(sources, source) > 0; }

void Speeds::Improve(const SpeedInput& input, double factor) {
  this->*input.value *= input.more_is_faster ? factor : 1 / factor;
  if (input.value != &Speeds::core_gops) return;
  for (double& gops : rows_gops) gops *= factor;
}

Speeds Speeds::Bound(bool best) const {
  Speeds bound = *this;
  for (const SpeedInput& input : kSpeedInputs) {
    if (SourceOf(input.value) == SpeedSource::kAssumed)
      bound.Improve(input, best ? input.spread : 1 / input.spread);
  }
  return bound;
}

std::string Speeds::Origin() const {
  std::string out = AnyOf(SpeedSource::kMeasured) ? "measured here" : "";
  if (AnyOf(SpeedSource::kGiven)) out += out.empty() ? "given" : " and given";
  if (AnyOf(SpeedSource::kAssumed)) out += out.empty() ? "assumed" : ", the rest assumed";
  return out;
}

std::string Speeds::Text() const {
  std::string out;
  for (const SpeedSource source :
       {SpeedSource::kMeasured, SpeedSource::kGiven, SpeedSource::kAssumed}) {
    std::string line;
    for (const SpeedInput& input : kSpeedInputs) {
      if (SourceOf(input.value) != source) continue;
      std::string word = fmt::format("{} {:.3g}", input.option + 2, this->*input.value);
      // Lines of at most 100 columns.
      const size_t begin = line.rfind('\n') + 1;
      line += line.empty()                             ? word
              : line.size() - begin + word.size() > 84 ? fmt::format(",\n             {}", word)
                                                       : fmt::format(", {}", word);
    }
    if (!line.empty()) out += fmt::format("  {:<9}  {}\n", Name(source), line);
  }
  return out;
}

}  // namespace larder::pipeline::prediction
