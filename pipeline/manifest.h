// Manifest: what the operator says about servers and sockets, in a TOML file (deploy/README.md has every key,
// with examples beside it). Parse checks all that can be checked without a machine; Resolve then holds one
// server's sockets against its topology and gives what a Plan needs: cores, CPUs, NUMA node, role. Set-up
// code, one thread; values, nothing shared. Every mistake is an Error of one line: file, line, server,
// socket, key, value, expected.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kernels/isa.h"
#include "model/config.h"
#include "topology/topology.h"

namespace larder::pipeline {

// weight: norm, QKV, O, FFN and head, never the KV cache. attention: the KV slots and attention. serving:
// embedding and clients. colocated: weight and attention in one. auto: Resolve decides and says why.
enum class Role { kWeight, kAttention, kServing, kColocated, kAuto };
const char* RoleName(Role role);
constexpr bool HoldsWeights(Role role) { return role == Role::kWeight || role == Role::kColocated; }
constexpr bool HoldsKv(Role role) { return role == Role::kAttention || role == Role::kColocated; }

struct SocketSpec {
  std::string name;  // of all servers' sockets the only one so called
  Role role = Role::kAuto;
  std::string cores = "all";          // as written; the syntax is checked
  std::optional<int> numa_node;       // default: where most of its cores are
  std::optional<bool> isolated;       // default: what the kernel's isolcpus says of its cores
  std::optional<double> l3_fraction;  // default: the model's
  std::optional<size_t> slots;        // default: an even share of the model's
  bool smt = false;                   // a thread for each SMT sibling too
  int line = 0;                       // of [[server.socket]]; 0: there is no file
};

struct ServerSpec {
  std::string name;
  std::string address;  // host or host:port; may be empty if there is one server
  std::vector<SocketSpec> sockets;
  std::optional<std::string> topology;  // hwloc XML, as written; default: the machine we run on
  int line = 0;
};

struct Manifest {
  std::string path;  // for messages, and the folder that relative paths start from
  std::string name;
  std::optional<std::string> model;  // GGUF file, as written; the command line's -m goes before it
  size_t context = 0;                // tokens of a slot; 0: as PlanOptions chooses
  size_t slots = 0;                  // of all sockets that hold KV; 0: the sum of theirs, one each by default
  std::optional<kernels::Isa> isa;   // default: the best of the host
  double l3_fraction = 0.75;         // of each L3, for weights
  bool require_resident = false;     // weights that exceed their L3 budget are an Error, not a warning
  std::vector<ServerSpec> servers;   // at least one, each with at least one socket

  static Manifest Load(const std::string& path);
  static Manifest Parse(std::string_view text, const std::string& path_for_messages);

  // A path of the manifest, relative ones from the manifest's folder.
  std::string ResolvePath(const std::string& written) const;
  // Error that lists the names there are.
  const ServerSpec& server(std::string_view name) const;
  const ServerSpec& server_of_socket(std::string_view socket_name) const;
  size_t socket_count() const;
};

struct ResolvedSocket {
  std::string name;
  Role role = Role::kColocated;  // never kAuto
  std::vector<CoreId> cores;     // sorted by L3 group, then number; no core twice
  NumaNodeId node;               // for what the socket's threads share (KV slots, links)
  bool isolated = false;         // its cores run nothing else: waiting threads may spin
  double l3_fraction = 0.75;
  size_t slots = 0;  // 0 unless it holds KV

  bool smt = false;
  std::vector<CpuId> cpus;          // a thread each, core by core; with smt the siblings follow their core
  std::string reason;               // why this role, for `larder plan`
  std::vector<std::string> joined;  // sockets of role auto whose cores became part of this one
};

// The sockets of `server`, which is one of the manifest's. config: the model's shape if it is known, for what
// depends on bytes (auto roles, L3 budgets); may be null. Warnings, one line each, are appended if `warnings`
// is not null: cores in two sockets, a NUMA node that is not the cores' own, weights larger than their L3
// budget. The rules for role "auto" are in manifest_roles.cc.
std::vector<ResolvedSocket> Resolve(const Manifest& manifest, const ServerSpec& server,
                                    const topology::Topology& topology, const model::ModelConfig* config,
                                    std::vector<std::string>* warnings);

// What the manifest asks for and this version can plan but not run, one line each; empty: it runs.
std::vector<std::string> NotYetSupported(const Manifest& manifest);

// The server's own XML file, or this machine.
topology::Topology LoadTopology(const Manifest& manifest, const ServerSpec& server);

}  // namespace larder::pipeline
