// Manifest: the operator's description of servers and sockets, a TOML file (deploy/README.md has
// every key, with examples beside it). Parse checks all that can be checked without a machine or a
// model; a Plan (pipeline/plan/) checks the rest. Set-up code for one thread; the types are values
// and share nothing.
// Every mistake is an Error of one line: file, line, server, socket, key, value, expected.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/range.h"
#include "kernels/formats/isa.h"
#include "rdma/link/frame_link.h"

namespace larder::pipeline::inline manifest {

// weight: norm, QKV, O and FFN, never the KV cache. attention: the KV slots and attention. serving:
// embedding, lm_head and clients (without a chain the weight socket has them). colocated: weight
// and attention in one. auto: Resolve decides and gives the reason.
enum class Role { kWeight, kAttention, kServing, kColocated, kAuto };
const char* RoleName(Role role);
constexpr bool HoldsWeights(Role role) { return role == Role::kWeight || role == Role::kColocated; }
constexpr bool HoldsKv(Role role) { return role == Role::kAttention || role == Role::kColocated; }

// The key `transport`: what may carry frames between two stages. auto: shared memory on one server,
// else verbs if both ends name a device, else TCP. ChooseTransport makes an rdma::Transport of the
// choices of two ends.
enum class TransportChoice { kAuto, kShm, kTcp, kVerbs };

// How other stages reach a socket. A socket's own keys take precedence over those of [link].
struct LinkSpec {
  std::optional<TransportChoice> transport;
  std::optional<std::string> device;  // RDMA device: "mlx5_0"
  std::optional<int> device_port;     // the device's port, from 1
  std::optional<int> gid_index;
  std::optional<int> mtu;  // bytes: 256, 512, 1024, 2048 or 4096
};

struct SocketSpec {
  std::string name;  // unique among the sockets of all servers
  Role role = Role::kAuto;
  std::string cores = "all";          // as written; Parse has checked the syntax
  std::optional<int> numa_node;       // default: the node of most of its cores
  std::optional<bool> isolated;       // default: what the kernel's isolcpus says about its cores
  std::optional<double> l3_fraction;  // default: the model's
  std::optional<size_t> slots;        // default: an even share of the model's
  bool smt = false;                   // one thread per SMT sibling, too
  size_t threads = 0;  // not a key: this many on picked cores, shared if there are fewer; 0:
                       // `cores`
  std::optional<Range<size_t>> layers;  // written with both ends; default: by predicted time
  std::string for_socket;  // key `for`: the weight socket whose KV cache this attention socket
                           // holds
  std::optional<uint16_t> port;  // default: see EndpointOf
  LinkSpec link;
  std::vector<std::string> options;  // for a serving socket: options of `larder serve`
  int line = 0;                      // line of [[server.socket]]; 0: not from a file
};

struct ServerSpec {
  std::string name;
  std::string address;  // host or host:port; may be empty if there is one server
  std::string ssh;      // where larder-cluster logs in; empty: the host of `address`
  std::vector<SocketSpec> sockets;
  std::optional<std::string> topology;  // path of hwloc XML, as written; default: this machine
  int line = 0;
};

struct Manifest {
  // For messages; relative paths start from its folder. Empty: no file, but made by the program for
  // a machine or for sockets that nobody described (pipeline/plan/made_manifests.h).
  std::string path;
  std::string name;
  std::optional<std::string> model;  // GGUF file, as written; -m on the command line overrides it
  size_t context = 0;                // tokens per slot; 0: PlanOptions chooses
  size_t slots = 0;      // slots of all sockets that hold KV; 0: the sum of their own slots, by
                         // default one each
  size_t kv_tokens = 0;  // tokens of all slots together; 0: a full context for each
  uint64_t cache_ram_mib = 0;  // memory for KV of sequences that have ended, of all stages together
  std::string cache_dir;       // files of KV of ended sequences, as written; empty: none
  uint64_t cache_disk_mib = 8192;   // limit for each socket's files
  std::optional<kernels::Isa> isa;  // default: the host's best
  double l3_fraction = 0.75;        // the share of each L3 for weights
  bool require_resident = false;  // weights that exceed their L3 budget are an Error, not a warning
  LinkSpec link;                  // for all sockets that do not say otherwise
  uint16_t port = 7171;  // the port of each server's first socket; a port in the address overrides
                         // it
  std::vector<ServerSpec> servers;  // at least one, each with at least one socket

  bool written() const { return !path.empty(); }

  static Manifest Load(const std::string& path);
  static Manifest Parse(std::string_view text, const std::string& path_for_messages);

  // Resolves a path written in the manifest; relative paths start from the manifest's folder.
  std::string ResolvePath(const std::string& written) const;
  // Both throw an Error that lists the existing names.
  const ServerSpec& server(std::string_view name) const;
  const ServerSpec& server_of_socket(std::string_view socket_name) const;
};

// The name of the socket of this number, counted from 0 over all servers as they are written: the
// task of a scheduler that starts one process for each. Throws Error if there are not as many.
const std::string& SocketOfRank(const Manifest& manifest, size_t rank);

// The sockets that compute a range of consecutive layers, by the text alone: one socket that holds
// weights and, if it is a weight socket, the attention sockets that hold its KV cache: those of its
// server, then those of others.
struct StageSpec {
  const ServerSpec* server = nullptr;
  const SocketSpec* socket = nullptr;
  std::vector<const SocketSpec*> attention;
};
// The stages in the order of their layers: by the `layers` keys if there are any, else in the
// manifest's order. (Sockets that Resolve joins are one stage, under the name of the first.) They
// point into the manifest.
std::vector<StageSpec> StagesOf(const Manifest& manifest);

// The most micro-batches in flight: one per stage and one for the serving socket, which computes
// like the stages. While it holds a micro-batch (norm, lm_head, sampler, two links), P
// micro-batches would leave one of the P stages idle. Cache-Resident LLM Inference keeps P
// (section 6.2) because its embedding and argmax are short; with vocabularies of 128 thousand
// tokens and more, reading the lm_head takes as long as reading several layers. With fewer
// sequences fewer are in flight; no step waits to fill the last one. A single stage that serves
// itself has one micro-batch: its next step needs the tokens of the last one.
constexpr size_t MaxInFlight(size_t stages) { return stages + 1; }

// The socket of role serving and its server. Null if there is none: then a process that joins the
// cluster serves (`larder run --join`).
struct ServingSpec {
  const ServerSpec* server = nullptr;
  const SocketSpec* socket = nullptr;
};
ServingSpec ServingOf(const Manifest& manifest);

// Where a socket listens: the host of its server's address (empty if it has none) and its own port,
// or the port of the address, else of [link], plus the socket's index on its server, from 0.
struct Endpoint {
  std::string host;  // without brackets
  uint16_t port = 0;
};
Endpoint EndpointOf(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket);
// Where a weight socket listens for the attention socket of this index of StageSpec::attention, one
// of another server: on its own port plus 64 for each, since a server has at most 64 sockets.
Endpoint BackEndpointOf(const Manifest& manifest, const StageSpec& stage, size_t attention);

// The socket's link keys, with those of [link] where it has none.
LinkSpec LinkOf(const Manifest& manifest, const SocketSpec& socket);
// Throws Error if the two ends ask for different transports, or for shared memory between servers.
rdma::Transport ChooseTransport(const LinkSpec& one, const LinkSpec& other, bool same_server);

// The file that a socket loads: `model` itself or, if that is a folder of parts (`larder split`),
// the part of its stage; for a serving socket and for "" the serving part.
std::string ModelFileOf(const Manifest& manifest, const std::string& model,
                        std::string_view socket);

}  // namespace larder::pipeline::manifest
