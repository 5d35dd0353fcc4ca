// Test support: Plans of manifests for machines described by topology files. Included by tests
// only.
#pragma once

#include <string>
#include <vector>

#include "pipeline/manifest/manifest_testing.h"
#include "pipeline/plan/plan.h"

namespace larder::pipeline::inline plan {

inline model::ModelConfig Shape(const char* name) {
  return model::ConfigOfShape(model::ShapeByName(name), name);
}

// Two servers of two packages with 64 MB of L3 each; three stages, one of them colocated with half
// of the L3.
inline constexpr const char* kThree =
    "name = \"three\"\n[model]\ncontext = 256\nslots = 5\n"
    "[[server]]\nname = \"a\"\naddress = \"10.0.0.1\"\n"
    "[[server.socket]]\nname = \"w\"\nrole = \"weight\"\ncores = \"package:0\"\n"
    "[[server.socket]]\nname = \"k1\"\nrole = \"attention\"\ncores = \"l3:2\"\n"
    "[[server.socket]]\nname = \"k2\"\nrole = \"attention\"\ncores = \"l3:3\"\nslots = 4\n"
    "[[server]]\nname = \"b\"\naddress = \"10.0.0.2\"\n"
    "[[server.socket]]\nname = \"c1\"\nrole = \"colocated\"\ncores = \"l3:0\"\n"
    "[[server.socket]]\nname = \"c2\"\nrole = \"colocated\"\ncores = \"package:1\"\n";

// A weight socket with an attention socket on its server and one, of three slots, on another.
inline constexpr const char* kAttentionElsewhere =
    "name = \"far\"\n[model]\nslots = 4\n[[server]]\nname = \"w\"\naddress = \"10.0.0.1\"\n"
    "[[server.socket]]\nname = \"weights\"\nrole = \"weight\"\ncores = \"package:0\"\n"
    "[[server.socket]]\nname = \"near\"\nrole = \"attention\"\ncores = \"package:1\"\n"
    "[[server]]\nname = \"kv\"\naddress = \"10.0.0.2:9000\"\n"
    "[[server.socket]]\nname = \"far\"\nrole = \"attention\"\ncores = \"all\"\n"
    "for = \"weights\"\nslots = 3\n";

inline Plan PlanOf(const std::string& text, const model::ModelConfig& config, const char* machine) {
  const Manifest manifest = Manifest::Parse(text, "m.toml");
  const std::vector<topology::Topology> machines(manifest.servers.size(), TestMachine(machine));
  return MakePlan(manifest, config, {}, machines);
}

inline model::ModelConfig TenLayers() {
  model::ModelShape shape = model::ShapeByName("bench-24m");
  shape.layers = 10;
  return model::ConfigOfShape(shape, "ten layers");
}

}  // namespace larder::pipeline::plan
