// What `larder doctor` finds out: settings of the host, measured bandwidths and hand-over times, the kernels'
// own checks, and with a model the residency of its weights. Findings are plain data; printing is
// cmd_doctor's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/formats/isa.h"
#include "topology/topology.h"

namespace larder::node {

enum class Health { kOk, kNote, kWarn, kBad };  // kNote: neither good nor bad
std::string_view HealthName(Health health);     // "ok", "note", "warn", "bad"

struct Diagnosis {
  Health health = Health::kOk;
  std::string what;
  std::string value;
  std::string advice;                                        // empty: nothing to do
  std::vector<std::pair<std::string, double>> figures = {};  // those of `value`, by name and unit: "l3_gbps"
};

std::vector<Diagnosis> DiagnoseHost(const topology::Topology& machine);
// Measures for about `seconds`.
std::vector<Diagnosis> DiagnoseBandwidth(const topology::Topology& machine, double seconds);
std::vector<Diagnosis> DiagnoseHandOver(const topology::Topology& machine);
// Makes every kind of kernel for the instruction set; making one checks it against the scalar reference.
Diagnosis DiagnoseKernels(kernels::Isa isa);

}  // namespace larder::node
