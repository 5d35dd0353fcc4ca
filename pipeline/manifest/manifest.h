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
#include "kernels/formats/isa.h"
#include "model/config/config.h"
#include "topology/topology.h"

namespace larder::pipeline {

// weight: norm, QKV, O, FFN and head, never the KV cache. attention: the KV slots and attention. serving:
// embedding and clients. colocated: weight and attention in one. auto: Resolve decides and says why.
enum class Role { kWeight, kAttention, kServing, kColocated, kAuto };
const char* RoleName(Role role);
constexpr bool HoldsWeights(Role role) { return role == Role::kWeight || role == Role::kColocated; }
constexpr bool HoldsKv(Role role) { return role == Role::kAttention || role == Role::kColocated; }

// What carries frames between two stages. auto: shared memory on one server, else verbs if both ends name a
// device, else TCP.
enum class Transport { kAuto, kShm, kTcp, kVerbs };
const char* TransportName(Transport transport);

// How other stages reach a socket: its own keys, which go before those of [link].
struct LinkSpec {
  std::optional<Transport> transport;
  std::optional<std::string> device;  // of RDMA: "mlx5_0"
  std::optional<int> device_port;     // of the device, from 1
  std::optional<int> gid_index;
  std::optional<int> mtu;  // bytes: 256, 512, 1024, 2048 or 4096
};

struct LayerRange {
  size_t first = 0, last = 0;  // both included
};

struct SocketSpec {
  std::string name;  // of all servers' sockets the only one so called
  Role role = Role::kAuto;
  std::string cores = "all";          // as written; the syntax is checked
  std::optional<int> numa_node;       // default: where most of its cores are
  std::optional<bool> isolated;       // default: what the kernel's isolcpus says of its cores
  std::optional<double> l3_fraction;  // default: the model's
  std::optional<size_t> slots;        // default: an even share of the model's
  bool smt = false;                   // a thread for each SMT sibling too
  std::optional<LayerRange> layers;   // default: in proportion to the L3 budgets
  std::string for_socket;             // key `for`: the weight socket whose KV cache this one has
  std::optional<uint16_t> port;       // default: see EndpointOf
  LinkSpec link;
  std::vector<std::string> options;  // a serving socket's: `larder serve`'s
  int line = 0;                      // of [[server.socket]]; 0: there is no file
};

struct ServerSpec {
  std::string name;
  std::string address;  // host or host:port; may be empty if there is one server
  std::string ssh;      // where larder-cluster logs in; empty: the address's host
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
  LinkSpec link;                     // of all sockets that do not say otherwise
  uint16_t port = 7171;              // of each server's first socket; an address with a port goes before it
  std::vector<ServerSpec> servers;   // at least one, each with at least one socket

  static Manifest Load(const std::string& path);
  static Manifest Parse(std::string_view text, const std::string& path_for_messages);

  // A path of the manifest, relative ones from the manifest's folder.
  std::string ResolvePath(const std::string& written) const;
  // Error that lists the names there are.
  const ServerSpec& server(std::string_view name) const;
  const ServerSpec& server_of_socket(std::string_view socket_name) const;
};

struct ResolvedSocket {
  std::string name;
  Role role = Role::kColocated;  // never kAuto
  std::vector<CoreId> cores;     // sorted by L3 group, then number; no core twice
  NumaNodeId node;               // for what the socket's threads share (KV slots, links)
  bool isolated = false;         // its cores run nothing else: waiting threads may spin
  double l3_fraction = 0.75;
  size_t l3_sharers = 1;  // sockets with weights that touch the same L3 groups, itself among them
  size_t slots = 0;       // 0 unless it holds KV

  bool smt = false;
  std::vector<CpuId> cpus;          // a thread each, core by core; with smt the siblings follow their core
  std::string reason;               // why this role, for `larder plan`
  std::vector<std::string> joined;  // sockets of role auto whose cores became part of this one
};

// Consecutive layers and who computes them, by the text alone: a socket that holds weights and, if it is a
// weight socket, the attention sockets of its server that have its KV cache.
struct StageSpec {
  const ServerSpec* server = nullptr;
  const SocketSpec* socket = nullptr;
  std::vector<const SocketSpec*> attention;
};
// In the order of their layers: by the `layers` keys if there are any, else as the manifest has them.
// (Sockets that Resolve joins stand as one stage of their first.) They point into the manifest.
std::vector<StageSpec> StagesOf(const Manifest& manifest);

// Micro-batches in flight: one for each stage and one for the serving socket, which is a station of the loop
// like the others: while it has a micro-batch (norm, output head, sampler, two links), P of them would leave
// a stage idle. The paper keeps P (section 6.2) because its embedding and argmax are short; with vocabularies
// of 128 thousand tokens and more the head is as much to read as several layers. It is the most that may be
// in flight: with fewer sequences there are fewer, and nobody waits for the one more. One stage that serves
// itself has one: its next step needs the last one's tokens.
constexpr size_t MicroBatchesOf(size_t stages) { return stages + 1; }

// The socket of role serving and its server; null if there is none: then whoever runs the cluster serves.
struct ServingSpec {
  const ServerSpec* server = nullptr;
  const SocketSpec* socket = nullptr;
};
ServingSpec ServingOf(const Manifest& manifest);

// Where a socket listens: the host of its server's address (empty if it has none) and its own port, or the
// port of the address, else of [link], plus the socket's place on its server, from 0.
struct Endpoint {
  std::string host;  // without brackets
  uint16_t port = 0;
};
Endpoint EndpointOf(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket);

// The socket's link keys, those of [link] where it has none.
LinkSpec LinkOf(const Manifest& manifest, const SocketSpec& socket);
// Never kAuto. Error if the two ends ask for different ones, or for shared memory between servers.
Transport ChooseTransport(const LinkSpec& one, const LinkSpec& other, bool same_server);

// The sockets of `server`, which is one of the manifest's. config: the model's shape if it is known, for what
// depends on bytes (auto roles, L3 budgets); may be null. Warnings, one line each, are appended if `warnings`
// is not null: cores in two sockets, a NUMA node that is not the cores' own, weights larger than their L3
// budget. The rules for role "auto" are in roles.cc.
std::vector<ResolvedSocket> Resolve(const Manifest& manifest, const ServerSpec& server,
                                    const topology::Topology& topology, const model::ModelConfig* config,
                                    std::vector<std::string>* warnings);

// What the manifest asks for and this version can plan but not run, one line each; empty: it runs.
std::vector<std::string> NotYetSupported(const Manifest& manifest);

// The server's own XML file, or this machine.
topology::Topology LoadTopology(const Manifest& manifest, const ServerSpec& server);

// The file that a socket loads: `model` itself, or, if that is a folder of parts (`larder split`), the part
// of its stage there; of serving for a serving socket and for "".
std::string ModelFileOf(const Manifest& manifest, const std::string& model, std::string_view socket);

// Error if the manifest asks for what this version can plan but not run.
void CheckRunnable(const Manifest&);

}  // namespace larder::pipeline
