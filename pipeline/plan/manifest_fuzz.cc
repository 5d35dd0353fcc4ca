// Parses any bytes as a manifest and resolves it on a small and a large machine. Each step succeeds
// or throws an Error of one line.
#include <cstdint>

#include "base/check.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/families/family.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/plan.h"

namespace larder::pipeline::inline plan {
namespace {

void CheckLine(const std::string& line) {
  LARDER_CHECK(!line.empty() && line.find('\n') == line.npos, "not one line: '{}'", line);
}

model::ModelConfig SmallModel() {
  model::ModelConfig config;
  config.layers = 2;
  config.dim = 1024;
  config.vocab = 512;
  config.trained_context = 4096;
  config.kinds = {model::MakeLayerSpec(
      model::FamilyOf("llama"),
      {.sizes = {.dim = 1024, .ffn = 2816, .heads = 16, .kv_heads = 4, .head_size = 64}}, 1e-5f,
      {})};
  config.kind_of.assign(config.layers, 0);
  return config;
}

void CheckResolved(const ResolvedSocket& socket, const topology::Topology& machine) {
  LARDER_CHECK(!socket.name.empty() && !socket.reason.empty() && socket.role != Role::kAuto);
  LARDER_CHECK(!socket.cores.empty() && socket.cpus.size() >= socket.cores.size() &&
               socket.node.valid());
  LARDER_CHECK(socket.l3_fraction > 0 && socket.l3_fraction <= 1);
  LARDER_CHECK(HoldsKv(socket.role) == (socket.slots > 0));
  for (const CoreId core : socket.cores) machine.core(core);
}

// A Plan has every layer once, in order; otherwise the Error has one line.
void CheckCluster(const Manifest& manifest, const topology::Topology& machine,
                  const model::ModelConfig& config) {
  const std::vector<topology::Topology> machines(manifest.servers.size(), machine);
  try {
    const Plan plan = MakePlan(manifest, config, {}, machines);
    size_t next = 0;
    for (const PlacedStage& stage : plan.stages) {
      LARDER_CHECK(stage.first_layer == next && stage.layers > 0 && stage.cores > 0);
      next += stage.layers;
    }
    LARDER_CHECK(next == config.layers && plan.capacity.slots > 0 &&
                 plan.capacity.max_batch_tokens > 0);
    LARDER_CHECK(plan.links.empty() == plan.single() && !plan.Table().empty());
    for (const std::string& note : plan.notes) CheckLine(note);
  } catch (const Error& error) {
    CheckLine(error.what());
  }
}

void Check(std::string_view text) {
  static const topology::Topology kMachines[] = {
      topology::Topology::FromXml(LARDER_SOURCE_DIR "/pipeline/manifest/testdata/two-cores.xml"),
      topology::Topology::FromXml(LARDER_SOURCE_DIR
                                  "/pipeline/manifest/testdata/two-packages.xml")};
  static const model::ModelConfig kModel = SmallModel();
  try {
    const Manifest manifest = Manifest::Parse(text, "m.toml");
    for (const topology::Topology& machine : kMachines) {
      for (const model::ModelConfig* model :
           {static_cast<const model::ModelConfig*>(nullptr), &kModel}) {
        std::vector<std::string> warnings;
        const auto sockets = Resolve(manifest, manifest.servers.front(), machine, model, &warnings);
        LARDER_CHECK(!sockets.empty());
        for (const ResolvedSocket& socket : sockets) CheckResolved(socket, machine);
        for (const std::string& line : warnings) CheckLine(line);
      }
      CheckCluster(manifest, machine, kModel);
    }
  } catch (const Error& error) {
    CheckLine(error.what());
  }
}

}  // namespace
}  // namespace larder::pipeline::plan

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::pipeline::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
