// What most commands need first: a model file, a machine and how to use it. Options are described to CLI11 in
// one place, so that they mean the same everywhere.
#pragma once

#include <optional>
#include <string>

#include "kernels/formats/isa.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace CLI {
class App;
}

namespace larder::node {

struct ModelOptions {
  std::string model;            // path
  std::string topology;         // hwloc XML of another machine; empty: this machine
  std::string isa;              // empty: the best of the host
  std::string manifest;         // TOML: which cores are which socket; empty: all in one
  std::string server;           // of the manifest; empty: its only one, or the one that says this host's name
  double frame_timeout_s = 10;  // of a cluster's stages; 0: none
  bool join = false;            // the manifest's attention sockets are processes (`larder node`), not threads
  std::string
      link_key;  // the cluster's key's file; empty: systemd's credential of that name, if there is one
  bool open_links = false;  // links to other servers without a key
  size_t threads = 0;
  size_t context = 0;
  size_t slots = 1;
  size_t ubatch = 0;
  double l3_fraction = 0.75;
  bool isolated = false;
  bool residency = false;          // measured and printed
  bool measure_residency = false;  // measured, for whoever asks the Stage; quicker
  bool verbose = false;
  // The machine with all its CPUs, not only ours: processes that are confined to different ones must compute
  // the same Plan. --join implies it.
  bool whole_machine = false;
};

// Which of the shared options a command takes, beside -m, -t, --isa, --topology and -v.
struct ModelOptionSet {
  bool model_required = true;
  bool threads = true;   // bench has a list of its own
  bool context = true;   // -c
  bool slots = false;    // --slots
  bool engine = true;    // -ub, --l3-fraction, --isolated, --residency: commands that load the model
  bool budget = false;   // --l3-fraction and -ub without engine
  bool manifest = true;  // --manifest, --server; with engine also --join
};
void AddModelOptions(CLI::App& command, ModelOptions& options, const ModelOptionSet& set);

kernels::Isa ResolveIsa(const std::string& name);  // throws Error: lists the names, or what the host lacks
topology::Topology ResolveTopology(const ModelOptions& options);
pipeline::PlanOptions ToPlanOptions(const ModelOptions& options);

// The manifest of --manifest and which of its servers this is.
struct ManifestAndServer {
  pipeline::Manifest manifest;
  const pipeline::ServerSpec& server() const { return manifest.servers[index]; }
  size_t index = 0;
};
// Reads it; nullopt if none was given. The server is --server, else the one that has the socket of that name,
// else the only one or the one that has this host's name; Error if there is none.
std::optional<ManifestAndServer> LoadManifest(const ModelOptions& options, const std::string& socket = "");
// The same for commands that look at all servers from anywhere: the server is the first.
std::optional<ManifestAndServer> ReadManifest(const ModelOptions& options);

// Whether a manifest describes a chain of stages: several, or one and a serving socket.
bool IsCluster(const pipeline::Manifest& manifest);

// The manifest's path for the model if the command line names none. Error if neither does. In a folder of
// parts (`larder split`) it is the part of this socket; of serving for "".
std::string ModelPath(const ModelOptions& options, const std::optional<ManifestAndServer>& where,
                      const std::string& socket = "");

}  // namespace larder::node
