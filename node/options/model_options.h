// The options that most commands need: a model file, a machine and how to use it. They are
// described to CLI11 in one place, so that they mean the same everywhere.
#pragma once

#include <optional>
#include <string>

#include "kernels/formats/isa.h"
#include "model/step/capacity.h"
#include "pipeline/kv_store/kv_part.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/plan/stage_plan.h"
#include "topology/topology.h"

namespace CLI {
class App;
}

namespace larder::node::inline options {

struct ModelOptions {
  std::string model;     // path
  std::string topology;  // hwloc XML of another machine; empty: this machine
  std::string isa;       // empty: the best that the host has
  std::string manifest;  // TOML: which cores are which socket; empty: one socket has all
  std::string server;    // a name in the manifest; empty: its only server, or the one with this
                         // host's name
  double frame_timeout_s = 10;  // limit for a micro-batch on a cluster's stages; 0: none
  bool join = false;     // the manifest's other sockets are processes (`larder node`), not threads
  std::string link_key;  // file with the cluster's key; empty: systemd's credential link.key, if
                         // there is one
  bool open_links = false;  // allows links to other servers without a key
  size_t threads = 0;
  model::Capacity capacity;
  size_t cache_ram_mib = 0;
  bool keeps_kv_files = false;  // the command has AddCacheOptions
  std::string cache_folder;     // folder of KV files; empty: the manifest's
  std::string cache_disk;       // empty: the manifest's, or 8G
  double l3_fraction = 0.75;
  bool isolated = false;
  std::string schedules;           // file of `larder tune`; empty: the usual places; "none"
  bool residency = false;          // residency is measured and printed
  bool measure_residency = false;  // residency is measured for the metrics and the status page;
                                   // quicker
  bool verbose = false;
  // Plan for all CPUs of the machine, not only those that this process may use: processes that are
  // confined to different CPUs must compute the same Plan. --join implies it.
  bool whole_machine = false;
};

// Which of the shared options a command takes, besides -m, -t, --isa, --topology and -v.
struct ModelOptionSet {
  bool model_required = true;
  bool threads = true;  // bench has its own list
  bool context = true;  // -c
  bool slots = false;   // --slots
  bool engine = true;   // -ub, --l3-fraction, --isolated, --residency: commands that load the model
  bool budget = false;  // --l3-fraction and -ub where `engine` is false
  bool schedules = false;  // --schedules where `engine` is false
  bool manifest = true;    // --manifest, --server; with `engine` also --join
  bool server = true;      // --server; batch has one of its own
};
void AddModelOptions(CLI::App& command, ModelOptions& options, const ModelOptionSet& set);
// --kv-tokens and --cache-ram, for commands that have --slots.
void AddKvOptions(CLI::App& command, ModelOptions& options, const char* group);

// --cache-dir and --cache-disk, for commands whose process keeps KV in files.
void AddCacheOptions(CLI::App& command, ModelOptions& options, const char* group);

// Throws Error with the valid names, or with the features that the host lacks.
kernels::Isa ResolveIsa(const std::string& name);
topology::Topology ResolveTopology(const ModelOptions& options);
pipeline::PlanOptions ToPlanOptions(const ModelOptions& options);

// The manifest of --manifest, and which of its servers this one is.
struct ManifestAndServer {
  pipeline::Manifest manifest;
  const pipeline::ServerSpec& server() const { return manifest.servers[index]; }
  size_t index = 0;
};
// Which of the manifest's servers this one is: --server, else the one that has the socket of that
// name, else the only one or the one with this host's name. Error if there is none.
size_t ServerIndex(const pipeline::Manifest& manifest, const ModelOptions& options,
                   const std::string& socket);
// Reads the manifest and finds its server; nullopt if none was given.
std::optional<ManifestAndServer> LoadManifest(const ModelOptions& options,
                                              const std::string& socket = "");
// The same for commands that run anywhere and look at all servers: the server is the first.
std::optional<ManifestAndServer> ReadManifest(const ModelOptions& options);

// Where this command's process keeps KV files: --cache-dir, else the manifest's cache_dir. No
// folder: nowhere.
pipeline::KvPartOptions KvFilesOf(const ModelOptions& options,
                                  const std::optional<ManifestAndServer>& where);

// Whether a manifest describes a chain of stages: several, or one and a serving socket.
bool IsCluster(const pipeline::Manifest& manifest);

// The model of the command line, else the manifest's. Error if neither names one. In a folder of
// parts (`larder split`) it is the part of this socket; "" stands for the serving part.
std::string ModelPath(const ModelOptions& options, const std::optional<ManifestAndServer>& where,
                      const std::string& socket = "");

}  // namespace larder::node::options
