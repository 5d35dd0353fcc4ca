// From a manifest's sockets to a Plan: what `--manifest` and `larder node` do before anything is allocated.
// The processes of a server each compute it for themselves and compare hashes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/config.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace larder::pipeline {

struct ManifestPlan {
  StagePlan plan;
  std::vector<ResolvedSocket> sockets;  // of the server, weight or colocated socket first
  std::vector<std::string> warnings;
  std::string cluster;  // the manifest's name: what its processes find each other by
};

// The plan of one server. options: what the command line said (threads, cores and attention are the
// manifest's). Throws Error for sockets that make no Plan.
ManifestPlan PlanManifest(const Manifest&, const ServerSpec&, const model::ModelConfig&,
                          const topology::Topology&, PlanOptions options);

// The core of each of the socket's CPUs: with SMT threads a core stands there as often as it has CPUs.
std::vector<CoreId> CoresOf(const ResolvedSocket& socket, const topology::Topology& topology);

// The file that a socket loads: `model` itself, or, if that is a folder of parts (`larder split`), the part
// of its stage there; of serving for a serving socket and for "".
std::string ModelFileOf(const Manifest& manifest, const std::string& model, std::string_view socket);

// Error if the manifest asks for what this version can plan but not run.
void CheckRunnable(const Manifest&);

// The index of an attention socket of the plan; Error that lists their names.
size_t AttentionIndex(const ManifestPlan&, const std::string& socket);

// Who does what and why, for people: the sockets, then the Plan's table.
std::string Table(const ManifestPlan&);

}  // namespace larder::pipeline
