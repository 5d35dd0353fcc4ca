#include "pipeline/plan/resolve.h"

#include <algorithm>
#include <map>
#include <set>

#include "attention_node/kv_region.h"
#include "base/error.h"
#include "pipeline/manifest/cores.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/manifest/roles.h"
#include "pipeline/manifest/text.h"
#include "pipeline/plan/pick_cores.h"
#include "topology/host.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

using topology::Topology;

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

class Resolver {
 public:
  Resolver(const Manifest& manifest, const ServerSpec& server, const Topology& topology,
           const model::ModelConfig* config, std::vector<std::string>* warnings)
      : manifest_(manifest),
        server_(server),
        topology_(topology),
        config_(config),
        warnings_(warnings) {}

  std::vector<ResolvedSocket> Run() {
    const std::vector<size_t> slots = DecideSlots(manifest_, server_);
    for (size_t i = 0; i < server_.sockets.size(); ++i) {
      const SocketSpec& spec = server_.sockets[i];
      ResolvedSocket socket = Place(spec);
      RoleChoice choice = DecideRole(server_, spec);
      socket.role = choice.role;
      socket.reason = std::move(choice.reason);
      socket.slots = slots[i];
      if (spec.slots && !HoldsKv(socket.role) && !MayJoin(manifest_))
        Warn(fmt::format(
            "{}: slots = {}: auto made it a {} socket, which has none; they are ignored",
            AtSocket(manifest_, server_, spec), *spec.slots, RoleName(socket.role)));
      sockets_.push_back(std::move(socket));
    }
    CheckOverlaps();
    ShareL3();
    if (MayJoin(manifest_)) DecideJoin();
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (HoldsWeights(sockets_[i].role)) CheckL3(server_.sockets[i], sockets_[i]);
    }
    CheckL3Promises();
    return std::move(sockets_);
  }

 private:
  void Warn(std::string text) {
    // of a manifest that the program made nobody could mend what is said about its sockets
    if (warnings_ != nullptr && manifest_.written()) warnings_->push_back(std::move(text));
  }

  ResolvedSocket Place(const SocketSpec& spec) {
    const std::string at = AtSocket(manifest_, server_, spec);
    ResolvedSocket socket;
    socket.name = spec.name;
    PickedCores picked = Pick(spec, at);
    socket.cores = std::move(picked.cores);
    socket.cpus = std::move(picked.cpus);
    socket.smt = spec.smt;
    socket.node = Node(spec, socket.cores, at);
    socket.l3_fraction = spec.l3_fraction.value_or(manifest_.l3_fraction);
    if (spec.isolated) {
      socket.isolated = *spec.isolated;
    } else if (!topology_.from_xml()) {
      const auto isolated = topology::IsolatedCpus();
      socket.isolated = std::all_of(socket.cpus.begin(), socket.cpus.end(), [&](CpuId cpu) {
        return std::find(isolated.begin(), isolated.end(), cpu) != isolated.end();
      });
    }
    return socket;
  }

  PickedCores Pick(const SocketSpec& spec, const std::string& at) const {
    if (spec.threads != 0) {
      std::vector<CoreId> cores = topology_.PickCores(spec.threads);
      std::vector<CpuId> cpus = topology_.CpusOf(cores);
      std::set<CoreId> seen;  // more threads than cores: a core more than once
      std::erase_if(cores, [&](CoreId core) { return !seen.insert(core).second; });
      return {std::move(cores), std::move(cpus)};
    }
    std::string problem;
    const auto set = ParseCoreSet(spec.cores, &problem);
    if (!set)
      throw Error("{}: cores = \"{}\": {}; expected {}", at, Shown(spec.cores), problem,
                  kCoreSetExpected);
    auto picked = PickCoreSet(*set, spec.smt, topology_, &problem);
    if (!picked) throw Error("{}: cores = \"{}\": {}", at, Shown(spec.cores), problem);
    return std::move(*picked);
  }

  NumaNodeId Node(const SocketSpec& spec, const std::vector<CoreId>& cores, const std::string& at) {
    std::map<NumaNodeId, size_t> counts;
    for (const CoreId id : cores) ++counts[topology_.core(id).numa_node];
    const NumaNodeId nearest =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
          return a.second < b.second;
        })->first;
    if (!spec.numa_node) return nearest;
    const NumaNodeId wanted(*spec.numa_node);
    std::vector<std::string> known;
    for (const topology::NumaNode& node : topology_.numa_nodes()) {
      if (node.id == wanted) {
        if (counts.count(wanted) == 0)
          Warn(
              fmt::format("{}: numa_node = {}: none of its cores is near this node (most are near "
                          "node {}): its memory will be slower",
                          at, wanted.value, nearest.value));
        return wanted;
      }
      known.push_back(fmt::format("{}", node.id.value));
    }
    throw Error("{}: numa_node = {}: {} has no such node; expected one of {}", at, wanted.value,
                topology_.source(), Join(known));
  }

  void CheckOverlaps() {
    for (size_t b = 1; b < sockets_.size(); ++b) {
      for (size_t a = 0; a < b; ++a) {
        std::vector<CoreId> mine = sockets_[a].cores, other = sockets_[b].cores, both;
        std::sort(mine.begin(), mine.end());
        std::sort(other.begin(), other.end());
        std::set_intersection(mine.begin(), mine.end(), other.begin(), other.end(),
                              std::back_inserter(both));
        if (both.empty()) continue;
        const std::string text = fmt::format(
            "{}: cores = \"{}\": {} core{} (first: core {}) also in socket \"{}\"",
            AtSocket(manifest_, server_, server_.sockets[b]), server_.sockets[b].cores, both.size(),
            both.size() == 1 ? " is" : "s are", both.front().value, sockets_[a].name);
        for (const ResolvedSocket* socket : {&sockets_[a], &sockets_[b]}) {
          if (!socket->isolated) continue;
          throw Error(
              "{}, but isolated = true for \"{}\" makes its threads spin there; expected cores of "
              "its own, or isolated = false",
              text, socket->name);
        }
        Warn(text + ": they will take turns");
      }
    }
  }

  // Packed bytes of one stage's weights in each L3 group of `cores`, if each core holds a shard.
  std::map<L3GroupId, uint64_t> GroupBytes(const std::vector<CoreId>& cores) const {
    const weight_node::ShardPlan shards = weight_node::MakeShardPlan(*config_, cores.size());
    const size_t stages = std::max<size_t>(1, StagesOf(manifest_).size());
    std::map<L3GroupId, uint64_t> bytes;
    for (size_t t = 0; t < cores.size(); ++t)
      bytes[topology_.core(cores[t]).l3_group] += CeilDiv(shards.ThreadBytes(*config_, t), stages);
    return bytes;
  }

  uint64_t Budget(L3GroupId group, double fraction) const {
    return static_cast<uint64_t>(static_cast<double>(topology_.l3_group(group).bytes) * fraction);
  }

  // The budget of all L3 groups of the cores; 0 if the size of one of them is not known.
  uint64_t BudgetOf(const std::vector<CoreId>& cores, double fraction) const {
    std::set<L3GroupId> groups;
    for (const CoreId id : cores) groups.insert(topology_.core(id).l3_group);
    uint64_t budget = 0;
    for (const L3GroupId group : groups) {
      if (topology_.l3_group(group).bytes == 0) return 0;
      budget += Budget(group, fraction);
    }
    return budget;
  }

  // Sockets with weights that share an L3 divide the default fraction among themselves.
  void ShareL3() {
    std::map<L3GroupId, size_t> holders;
    std::vector<std::set<L3GroupId>> groups(sockets_.size());
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (!HoldsWeights(sockets_[i].role)) continue;
      for (const CoreId id : sockets_[i].cores) groups[i].insert(topology_.core(id).l3_group);
      for (const L3GroupId group : groups[i]) ++holders[group];
    }
    for (size_t i = 0; i < sockets_.size(); ++i) {
      for (const L3GroupId group : groups[i])
        sockets_[i].l3_sharers = std::max(sockets_[i].l3_sharers, holders[group]);
      if (!server_.sockets[i].l3_fraction)
        sockets_[i].l3_fraction /= static_cast<double>(sockets_[i].l3_sharers);
    }
  }

  void DecideJoin() {
    if (config_ == nullptr) {
      sockets_.front().reason += " (the model is not known yet)";
      return;
    }
    std::vector<CoreId> all;
    for (const ResolvedSocket& socket : sockets_) {
      for (const CoreId id : socket.cores) {
        if (std::find(all.begin(), all.end(), id) == all.end()) all.push_back(id);
      }
    }
    ResolvedSocket& first = sockets_.front();
    const uint64_t first_budget = BudgetOf(first.cores, first.l3_fraction);
    const uint64_t budget = BudgetOf(all, first.l3_fraction);
    if (first_budget == 0 || budget == 0) {
      first.reason += " (the L3 size is not known)";
      return;
    }
    uint64_t weights = 0;
    for (const auto& [group, bytes] : GroupBytes(first.cores)) weights += bytes;
    model::Capacity capacity = {
        .slots = TotalSlots(), .context = manifest_.context, .kv_tokens = manifest_.kv_tokens};
    if (capacity.context == 0) capacity.context = attention_node::KvShape::DefaultContext(*config_);
    const auto classes = attention_node::KvShape::ClassesOf(*config_, capacity);
    const uint64_t kv =
        attention_node::KvShape(*config_, capacity.slots, capacity.context,
                                attention_node::KvShape::Pools(classes, capacity.slots, capacity),
                                classes)
            .bytes();
    const size_t slots = capacity.slots, context = capacity.context;
    const std::string figures = fmt::format(
        "{:.1f} MB of weights, {:.1f} MB of KV cache ({} slot{} of {} tokens), L3 budget {:.1f} MB "
        "of this socket, {:.1f} MB of all",
        Mb(weights), Mb(kv), slots, slots == 1 ? "" : "s", context, Mb(first_budget), Mb(budget));
    if (weights <= first_budget && weights + kv > budget) {
      for (ResolvedSocket& socket : sockets_)
        socket.reason =
            fmt::format("separated: the KV cache would push the weights out ({})", figures);
      return;
    }
    JoinAll(fmt::format("joined: {} ({})",
                        weights > first_budget
                            ? "the weights exceed one socket's L3 budget, so no core stays without"
                            : "weights and KV cache fit the L3 budget together",
                        figures),
            slots);
  }

  size_t TotalSlots() const {
    if (manifest_.slots != 0) return manifest_.slots;
    size_t slots = 0;
    for (const SocketSpec& spec : server_.sockets) slots += spec.slots.value_or(0);
    return std::max<size_t>(1, slots);
  }

  void JoinAll(std::string reason, size_t slots) {
    ResolvedSocket joined = sockets_.front();
    std::map<CoreId, std::vector<CpuId>> cpus;
    std::map<NumaNodeId, size_t> nodes;
    for (const ResolvedSocket& socket : sockets_) {
      for (const CpuId cpu : socket.cpus) {
        const auto core = std::find_if(socket.cores.begin(), socket.cores.end(), [&](CoreId id) {
          const auto& of = topology_.core(id).cpus;
          return std::find(of.begin(), of.end(), cpu) != of.end();
        });
        std::vector<CpuId>& of_core = cpus[*core];
        const bool known = std::find(of_core.begin(), of_core.end(), cpu) != of_core.end();
        if (!known && (of_core.empty() || socket.smt)) of_core.push_back(cpu);
      }
      nodes[socket.node] += socket.cores.size();
      joined.isolated = joined.isolated && socket.isolated;
      joined.smt = joined.smt || socket.smt;
      if (&socket != &sockets_.front()) joined.joined.push_back(socket.name);
    }
    joined.cores.clear();
    joined.cpus.clear();
    for (const auto& [core, unused] : cpus) joined.cores.push_back(core);
    std::sort(joined.cores.begin(), joined.cores.end(), [&](CoreId a, CoreId b) {
      return std::pair(topology_.core(a).l3_group, a) < std::pair(topology_.core(b).l3_group, b);
    });
    for (const CoreId core : joined.cores)
      joined.cpus.insert(joined.cpus.end(), cpus[core].begin(), cpus[core].end());
    joined.node = std::max_element(nodes.begin(), nodes.end(), [](const auto& a, const auto& b) {
                    return a.second < b.second;
                  })->first;
    joined.role = Role::kColocated;
    joined.slots = slots;
    joined.reason = std::move(reason);
    sockets_.assign(1, joined);
  }

  // Reports the group that exceeds its budget most, in one line for the whole socket.
  void CheckL3(const SocketSpec& spec, const ResolvedSocket& socket) {
    if (config_ == nullptr) return;
    const std::string at = AtSocket(manifest_, server_, spec);
    const auto bytes = GroupBytes(socket.cores);
    size_t too_small = 0, unknown = 0;
    L3GroupId worst;
    uint64_t worst_over = 0;
    for (const auto& [group, weights] : bytes) {
      const uint64_t budget = Budget(group, socket.l3_fraction);
      if (topology_.l3_group(group).bytes == 0) {
        ++unknown;
      } else if (weights > budget) {
        ++too_small;
        if (weights - budget >= worst_over) {
          worst = group;
          worst_over = weights - budget;
        }
      }
    }
    if (unknown != 0) {
      Complain(
          fmt::format("{}: cores = \"{}\": the size of its L3 is not known, so nothing says that "
                      "the weights stay in it",
                      at, spec.cores));
    }
    if (too_small == 0) return;
    Complain(fmt::format(
        "{}: l3_fraction = {:g}: L3 group {} would hold {:.1f} MB of weights, {:.1f} MB more than "
        "its budget of {:.1f} MB ({} of {} groups are too small): they will stream from memory; "
        "expected more L3 groups, a smaller model or more weight sockets",
        at, socket.l3_fraction, worst.value, Mb(bytes.at(worst)), Mb(worst_over),
        Mb(Budget(worst, socket.l3_fraction)), too_small, bytes.size()));
  }

  void Complain(std::string text) {
    if (manifest_.require_resident)
      throw Error("{}; [model] require_resident = true forbids that", text);
    Warn(std::move(text));
  }

  // Two sockets with weights may use one L3 group. Warns if their fractions together exceed 1.
  void CheckL3Promises() {
    std::map<L3GroupId, std::vector<const ResolvedSocket*>> holders;
    for (const ResolvedSocket& socket : sockets_) {
      if (!HoldsWeights(socket.role)) continue;
      std::set<L3GroupId> groups;
      for (const CoreId id : socket.cores) groups.insert(topology_.core(id).l3_group);
      for (const L3GroupId group : groups) holders[group].push_back(&socket);
    }
    for (const auto& [group, sockets] : holders) {
      double promised = 0;
      std::vector<std::string> names;
      for (const ResolvedSocket* socket : sockets) {
        promised += socket->l3_fraction;
        names.push_back(fmt::format("\"{}\"", socket->name));
      }
      if (sockets.size() > 1 && promised > 1) {
        Warn(fmt::format(
            "{}: l3_fraction: sockets {} take {:.0f} % of L3 group {} together; expected at most "
            "100 %",
            At(manifest_.path, server_.line, fmt::format("server \"{}\"", server_.name)),
            Join(names), 100 * promised, group.value));
      }
    }
  }

  const Manifest& manifest_;
  const ServerSpec& server_;
  const Topology& topology_;
  const model::ModelConfig* config_;
  std::vector<std::string>* warnings_;
  std::vector<ResolvedSocket> sockets_;
};

}  // namespace

std::vector<ResolvedSocket> Resolve(const Manifest& manifest, const ServerSpec& server,
                                    const Topology& topology, const model::ModelConfig* config,
                                    std::vector<std::string>* warnings) {
  return Resolver(manifest, server, topology, config, warnings).Run();
}

std::vector<LinkThread> LinkThreadsOf(const Manifest& manifest, const ServerSpec& server,
                                      std::span<const ResolvedSocket> sockets,
                                      const Topology& topology) {
  std::set<CoreId> spare;
  for (const topology::Core& core : topology.cores()) spare.insert(core.id);
  for (const ResolvedSocket& socket : sockets) {
    for (const CoreId core : socket.cores) spare.erase(core);
  }
  // How far a core is from the nearest one of a socket.
  const auto distance = [&](CoreId core, const ResolvedSocket& socket) {
    const topology::Core& from = topology.core(core);
    int least = 2;
    for (const CoreId other : socket.cores) {
      const topology::Core& to = topology.core(other);
      least = std::min(least, from.l3_group == to.l3_group ? 0
                              : from.package == to.package ? 1
                                                           : 2);
    }
    return least;
  };
  std::vector<LinkThread> threads;
  const auto add = [&](const std::string& name, const std::string& attention) {
    const auto socket = std::ranges::find(sockets, name, &ResolvedSocket::name);
    if (socket == sockets.end()) return;
    const auto nearest =
        std::ranges::min_element(spare, {}, [&](CoreId core) { return distance(core, *socket); });
    LinkThread& thread = threads.emplace_back(LinkThread{name, attention, CpuId()});
    if (nearest == spare.end()) return;
    thread.cpu = topology.core(*nearest).cpus.front();
    spare.erase(nearest);
  };
  for (const StageSpec& stage : StagesOf(manifest)) {
    for (const SocketSpec* attention : stage.attention) {
      const ServerSpec& its = manifest.server_of_socket(attention->name);
      if (&its == stage.server) continue;
      if (stage.server == &server) add(stage.socket->name, attention->name);
      if (&its == &server) add(attention->name, attention->name);
    }
  }
  return threads;
}

Topology LoadTopology(const Manifest& manifest, const ServerSpec& server) {
  return server.topology ? Topology::FromXml(manifest.ResolvePath(*server.topology))
                         : Topology::Detect();
}

}  // namespace larder::pipeline::plan
