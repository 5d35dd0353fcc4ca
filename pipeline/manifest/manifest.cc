// Reads a manifest, with all checks that need no machine.
#include "pipeline/manifest/manifest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "attention_node/kv_region.h"
#include "base/error.h"
#include "pipeline/manifest/cores.h"
#include "pipeline/manifest/fields.h"
#include "pipeline/manifest/links.h"
#include "pipeline/manifest/roles.h"
#include "pipeline/manifest/text.h"

namespace larder::pipeline::inline manifest {
namespace {

// Limits far above any rack. They bound what an untrusted file can make us allocate and print.
constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr size_t kMaxServers = 1024;
constexpr size_t kMaxSockets = 64;  // per server
constexpr int64_t kMaxSlots = 65536;
constexpr int64_t kMaxNode = 65535;
constexpr int kMaxLayer = 1023;
constexpr size_t kMaxNameBytes = 32;  // names go into those of shared memory segments and systemd
                                      // units

constexpr const char* kNameExpected =
    "1 to 32 letters, digits, '-', '_' or '.', beginning with a letter or digit";
constexpr const char* kRoles = "\"weight\", \"attention\", \"serving\", \"colocated\" or \"auto\"";

std::string ReadName(Fields& fields) {
  const auto name = fields.String("name", kNameExpected);
  if (!name) fields.FailTable(fmt::format("no name; expected name = with {}", kNameExpected));
  const bool good = name->size() <= kMaxNameBytes && IsAlnum(name->front()) &&
                    std::all_of(name->begin(), name->end(), [](char c) {
                      return IsAlnum(c) || c == '-' || c == '_' || c == '.';
                    });
  if (!good) fields.Fail("name", fmt::format("not a name; expected {}", kNameExpected));
  return *name;
}

Role ReadRole(Fields& fields) {
  const auto text = fields.String("role", kRoles);
  if (!text) fields.FailTable(fmt::format("no role; expected role = with {}", kRoles));
  for (const Role role :
       {Role::kWeight, Role::kAttention, Role::kServing, Role::kColocated, Role::kAuto}) {
    if (*text == RoleName(role)) return role;
  }
  fields.Fail("role", fmt::format("no such role; expected {}", kRoles));
}

// "0-13", or "13" for one layer.
void ReadLayers(Fields& fields, SocketSpec* socket) {
  constexpr const char* kExpected = "a range of layers such as \"0-13\"";
  const auto text = fields.String("layers", kExpected);
  if (!text) return;
  if (!HoldsWeights(socket->role) && socket->role != Role::kAuto) {
    fields.Fail(
        "layers",
        fmt::format("a socket of role {} holds no layers; expected it only with role weight, "
                    "colocated or auto",
                    RoleName(socket->role)));
  }
  const size_t dash = text->find('-');
  const auto first = ParseNumber(text->substr(0, dash), kMaxLayer);
  const auto last = dash == text->npos ? first : ParseNumber(text->substr(dash + 1), kMaxLayer);
  if (!first || !last || *last < *first)
    fields.Fail("layers",
                fmt::format("not a range of layers up to {}; expected {}", kMaxLayer, kExpected));
  socket->layers = Range<size_t>{static_cast<size_t>(*first), static_cast<size_t>(*last) + 1};
}

SocketSpec ReadSocket(const toml::table& table, const std::string& path,
                      const std::string& where_server) {
  Fields fields(table, path, where_server + ", a socket");
  SocketSpec socket;
  socket.line = fields.line();
  socket.name = ReadName(fields);
  fields.set_where(fmt::format("{}, socket \"{}\"", where_server, socket.name));
  socket.role = ReadRole(fields);
  const auto cores = fields.String("cores", kCoreSetExpected);
  if (!cores) fields.FailTable(fmt::format("no cores; expected cores = with {}", kCoreSetExpected));
  std::string problem;
  if (!ParseCoreSet(*cores, &problem))
    fields.Fail("cores", fmt::format("{}; expected {}", problem, kCoreSetExpected));
  socket.cores = *cores;
  if (const auto node =
          fields.Integer("numa_node", 0, kMaxNode, "the operating system's number of a NUMA node"))
    socket.numa_node = static_cast<int>(*node);
  socket.isolated = fields.Bool("isolated");
  socket.l3_fraction = fields.Fraction("l3_fraction");
  if (const auto slots = fields.Integer("slots", 1, kMaxSlots, "a number of slots"))
    socket.slots = static_cast<size_t>(*slots);
  socket.smt = fields.Bool("smt").value_or(false);
  ReadLayers(fields, &socket);
  socket.for_socket =
      fields.String("for", "the name of a weight socket of this server").value_or("");
  ReadPort(fields, &socket.port);
  ReadLink(fields, &socket.link);
  if (const auto options =
          fields.String("options", "options of `larder serve`, separated by spaces")) {
    std::istringstream words(*options);
    for (std::string word; words >> word;) socket.options.push_back(word);
    // FailTable(), since Fail() would print the API key.
    for (const std::string& word : socket.options) {
      if (word == "--api-key" || word.starts_with("--api-key="))
        fields.FailTable(
            "options: --api-key may not be in the manifest, which everybody on a server can read; "
            "expected --api-key-file FILE");
    }
    if (socket.role != Role::kServing)
      fields.Fail(
          "options",
          fmt::format("they are options of `larder serve`, which a socket of role {} does not take",
                      RoleName(socket.role)));
  }
  fields.Done();
  if (socket.slots && !HoldsKv(socket.role) && socket.role != Role::kAuto) {
    fields.Fail("slots",
                fmt::format("a {} socket has no KV cache; expected slots only with role attention, "
                            "colocated or auto",
                            RoleName(socket.role)));
  }
  if (socket.l3_fraction && !HoldsWeights(socket.role) && socket.role != Role::kAuto) {
    fields.Fail(
        "l3_fraction",
        fmt::format("it is for weights, and a socket of role {} holds none; expected it only with "
                    "role weight, colocated or auto",
                    RoleName(socket.role)));
  }
  return socket;
}

ServerSpec ReadServer(const toml::table& table, const std::string& path, bool only_one) {
  Fields fields(table, path, "a server");
  ServerSpec server;
  server.line = fields.line();
  server.name = ReadName(fields);
  fields.set_where(fmt::format("server \"{}\"", server.name));
  const auto address = fields.String("address", "a host name or address, with :PORT if need be");
  if (!address && !only_one)
    fields.FailTable(
        "no address; with several servers each needs address = \"HOST\" or \"HOST:PORT\"");
  if (address && !IsAddress(*address))
    fields.Fail(
        "address",
        "not an address; expected HOST, HOST:PORT or [IPV6]:PORT with a port of 1 to 65535");
  server.address = address.value_or("");
  constexpr const char* kSsh = "a target of ssh: HOST or USER@HOST, with :PORT if need be";
  server.ssh = fields.String("ssh", kSsh).value_or("");
  if (!server.ssh.empty() && !IsSshTarget(server.ssh))
    fields.Fail("ssh", fmt::format("not a target; expected {}", kSsh));
  server.topology =
      fields.String("topology", "the path of an XML file written by `lstopo FILE.xml`");
  const toml::array* sockets = fields.Tables("socket");
  fields.Done();
  if (sockets == nullptr) fields.FailTable("no sockets; expected at least one [[server.socket]]");
  if (sockets->size() > kMaxSockets)
    fields.FailTable(fmt::format("{} sockets; expected at most {}", sockets->size(), kMaxSockets));
  for (const toml::node& socket : *sockets)
    server.sockets.push_back(ReadSocket(*socket.as_table(), path, fields.where()));
  return server;
}

void ReadModel(const toml::table& table, const std::string& path, Manifest* manifest) {
  Fields fields(table, path, "[model]");
  manifest->model = fields.String("path", "the path of a GGUF file");
  if (const auto context =
          fields.Integer("context", 1, attention_node::KvShape::kMaxContext, "tokens of a slot"))
    manifest->context = static_cast<size_t>(*context);
  if (const auto slots = fields.Integer("slots", 1, kMaxSlots, "a number of slots"))
    manifest->slots = static_cast<size_t>(*slots);
  constexpr int64_t kMostKvTokens = int64_t{1} << 40;
  if (const auto tokens =
          fields.Integer("kv_tokens", 1, kMostKvTokens, "tokens that the KV caches hold together"))
    manifest->kv_tokens = static_cast<size_t>(*tokens);
  constexpr int64_t kMostMib = int64_t{1} << 30;
  if (const auto mib =
          fields.Integer("cache_ram", 0, kMostMib, "MiB of memory for ended sequences"))
    manifest->cache_ram_mib = static_cast<uint64_t>(*mib);
  manifest->cache_dir =
      fields.String("cache_dir", "a folder for files of ended sequences' KV").value_or("");
  if (const auto mib = fields.Integer("cache_disk", 1, kMostMib, "MiB of each socket's files"))
    manifest->cache_disk_mib = static_cast<uint64_t>(*mib);
  constexpr const char* kIsas = "\"auto\", \"scalar\", \"avx2\", \"avx-vnni\" or \"avx512-vnni\"";
  const auto isa = fields.String("isa", kIsas);
  if (isa && *isa != "auto") {
    manifest->isa = kernels::IsaByName(*isa);
    if (!manifest->isa)
      fields.Fail("isa", fmt::format("no such instruction set; expected {}", kIsas));
  }
  manifest->l3_fraction = fields.Fraction("l3_fraction").value_or(manifest->l3_fraction);
  manifest->require_resident = fields.Bool("require_resident").value_or(false);
  fields.Done();
}

void CheckNames(const Manifest& manifest) {
  std::map<std::string, int> servers, addresses, sockets;
  auto once = [&](std::map<std::string, int>* seen, const std::string& name, int line,
                  const char* what, const char* expected) {
    const auto [it, fresh] = seen->try_emplace(name, line);
    if (!fresh) {
      throw Error("{}: {} \"{}\" is defined twice, first at line {}; expected {}",
                  At(manifest.path, line, ""), what, name, it->second, expected);
    }
  };
  for (const ServerSpec& server : manifest.servers) {
    once(&servers, server.name, server.line, "server", "another name");
    if (!server.address.empty())
      once(&addresses, server.address, server.line, "address",
           "an address or port of its own for each server");
    for (const SocketSpec& socket : server.sockets)
      once(&sockets, socket.name, socket.line, "socket",
           "a name that no other socket of any server has");
  }
}

}  // namespace

const char* RoleName(Role role) {
  switch (role) {
    case Role::kWeight:
      return "weight";
    case Role::kAttention:
      return "attention";
    case Role::kServing:
      return "serving";
    case Role::kColocated:
      return "colocated";
    case Role::kAuto:
      break;
  }
  return "auto";
}

Manifest Manifest::Load(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    throw Error("{}: is a folder; expected a TOML file", path);
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error("{}: cannot be read; expected a TOML file, such as those in deploy/examples", path);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return Parse(text, path);
}

const std::string& SocketOfRank(const Manifest& manifest, size_t rank) {
  size_t sockets = 0;
  for (const ServerSpec& server : manifest.servers) {
    if (rank < sockets + server.sockets.size()) return server.sockets[rank - sockets].name;
    sockets += server.sockets.size();
  }
  throw Error("{}: it has {} sockets and none of rank {}; expected 0 to {}, one process for each",
              manifest.path, sockets, rank, sockets - 1);
}

Manifest Manifest::Parse(std::string_view text, const std::string& path_for_messages) {
  if (text.size() > kMaxFileBytes)
    throw Error("{}: larger than {} bytes; expected a TOML file of servers and sockets",
                path_for_messages, kMaxFileBytes);
  toml::table root;
  try {
    root = toml::parse(text, path_for_messages);
  } catch (const toml::parse_error& error) {
    throw Error("{}: not TOML: {}",
                At(path_for_messages, static_cast<int>(error.source().begin.line), ""),
                Shown(error.description()));
  }
  Manifest manifest;
  manifest.path = path_for_messages;
  Fields fields(root, path_for_messages, "");
  manifest.name = fields.String("name", "a name for people").value_or("");
  const toml::table* model = fields.Table("model");
  const toml::table* link = fields.Table("link");
  const toml::array* servers = fields.Tables("server");
  fields.Done();
  if (model != nullptr) ReadModel(*model, path_for_messages, &manifest);
  if (link != nullptr) {
    Fields link_fields(*link, path_for_messages, "[link]");
    std::optional<uint16_t> port;
    ReadPort(link_fields, &port);
    manifest.port = port.value_or(manifest.port);
    ReadLink(link_fields, &manifest.link);
    link_fields.Done();
  }
  if (servers == nullptr)
    throw Error("{}: no servers; expected at least one [[server]] with a [[server.socket]]",
                At(path_for_messages, 0, ""));
  if (servers->size() > kMaxServers)
    throw Error("{}: {} servers; expected at most {}", At(path_for_messages, 0, ""),
                servers->size(), kMaxServers);
  for (const toml::node& server : *servers)
    manifest.servers.push_back(
        ReadServer(*server.as_table(), path_for_messages, servers->size() == 1));
  CheckNames(manifest);
  CheckRoles(manifest);
  CheckLayers(manifest);
  CheckLinks(manifest);
  return manifest;
}

std::string Manifest::ResolvePath(const std::string& written) const {
  return (std::filesystem::path(path).parent_path() / written).string();
}

const ServerSpec& Manifest::server(std::string_view wanted) const {
  std::string known;
  for (const ServerSpec& server : servers) {
    if (server.name == wanted) return server;
    known += (known.empty() ? "" : ", ") + server.name;
  }
  throw Error("{}: no server \"{}\"; expected one of {}", At(path, 0, ""), Shown(wanted), known);
}

const ServerSpec& Manifest::server_of_socket(std::string_view socket_name) const {
  std::string known;
  for (const ServerSpec& server : servers) {
    for (const SocketSpec& socket : server.sockets) {
      if (socket.name == socket_name) return server;
      known += (known.empty() ? "" : ", ") + socket.name;
    }
  }
  throw Error("{}: no socket \"{}\"; expected one of {}", At(path, 0, ""), Shown(socket_name),
              known);
}

}  // namespace larder::pipeline::manifest
