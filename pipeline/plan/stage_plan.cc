#include "pipeline/plan/stage_plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "attention_node/kv_homes.h"
#include "attention_node/kv_region.h"
#include "attention_node/state_shape.h"
#include "base/error.h"
#include "base/fnv.h"
#include "kernels/formats/act_block.h"
#include "pipeline/plan/identity.h"
#include "pipeline/plan/read_text.h"
#include "weight_node/activations.h"

namespace larder::pipeline::inline plan {
namespace {

constexpr size_t kMaxThreads = 1024;
constexpr size_t kMaxBatchTokens = 4096;

void CheckMemory(const StagePlan& plan, const topology::Topology& topology) {
  const model::Capacity& capacity = plan.options.capacity;
  uint64_t memory = 0;
  for (const auto& node : topology.numa_nodes()) memory += node.memory_bytes;
  uint64_t need = plan.weight_bytes + plan.embedding_bytes + plan.kv_bytes;
  for (const PlanAttentionSocket& socket : plan.attention) {
    if (socket.elsewhere) need -= socket.kv_bytes;
  }
  if (memory == 0 || need <= memory) return;
  const uint64_t weights = plan.weight_bytes + plan.embedding_bytes;
  const uint64_t left = memory > weights ? memory - weights : 0;
  if (left == 0) {
    throw Error(
        "plan: the weights need {:.2f} GB, but the machine has {:.2f} GB of memory; split the "
        "model over several servers (larder plan --manifest, docs/cluster.md); to plan for other "
        "machines, larder plan --socket-l3 BYTES --socket-cores N, or --topology FILE",
        weights * 1e-9, memory * 1e-9);
  }
  // What windows see, and states, do not grow with the context.
  const auto kv = attention_node::KvShape::OfSequence(plan.config, capacity);
  uint64_t of_windows = 0, chunk_bytes = 0;
  for (size_t i = 0; i < kv.classes.size(); ++i) {
    if (kv.classes[i].window == 0 && !kv.classes[i].states) {
      chunk_bytes = kv.class_bytes[i];
    } else {
      of_windows += kv.sequence_chunks(i) * kv.class_bytes[i];
    }
  }
  const uint64_t of_slot = left / capacity.slots;
  const uint64_t fits = (of_slot - std::min(of_slot, of_windows)) /
                        std::max<uint64_t>(1, chunk_bytes) * kernels::kChunkPositions;
  throw Error(
      "plan: {} slots of {} tokens need {:.2f} GB of KV cache beside {:.2f} GB of weights, but the "
      "machine has {:.2f} GB; {}",
      capacity.slots, capacity.context, plan.kv_bytes * 1e-9, weights * 1e-9, memory * 1e-9,
      fits > 0
          ? fmt::format("the largest context that fits is {} (-c {})", fits, fits)
          : std::string(
                "not even one chunk of 256 tokens per slot fits: use fewer slots (-np, or slots in "
                "the manifest), or let them share fewer tokens (--kv-tokens)"));
}

void PlanAttention(StagePlan& plan, const topology::Topology& topology) {
  const model::Capacity& capacity = plan.options.capacity;
  SlotId first_slot(0);
  for (const PlanOptions::Attention& socket : plan.options.attention) {
    if (socket.slots == 0 || socket.cores.empty())
      throw Error("plan: attention socket '{}' needs at least one core and one slot", socket.name);
    PlanAttentionSocket out{.name = socket.name,
                            .threads = socket.elsewhere,
                            .elsewhere = !socket.elsewhere.empty(),
                            .link_cpu = socket.link_cpu,
                            .link_cpu_there = socket.link_cpu_there,
                            .first_slot = first_slot,
                            .slots = socket.slots};
    out.kv_pools = attention_node::KvShape::Pools(plan.kv_classes, socket.slots, capacity);
    const attention_node::KvShape kv(plan.config, socket.slots, capacity.context, out.kv_pools,
                                     plan.kv_classes);
    out.kv_chunks = kv.pool;
    out.first_chunk = plan.kv_chunks;
    out.kv_bytes = kv.bytes();
    plan.kv_chunks += out.kv_chunks;
    plan.kv_pools.insert(plan.kv_pools.end(), out.kv_pools.begin(), out.kv_pools.end());
    const auto cpus =
        socket.cpus.empty() && !out.elsewhere ? topology.CpusOf(socket.cores) : socket.cpus;
    if (!out.elsewhere) out.threads = ThreadsOn(topology, socket.cores, cpus);
    first_slot = out.end_slot();
    plan.attention.push_back(std::move(out));
  }
}

// One note for all L3 groups that are too small, one for all of unknown size.
void NoteResidency(StagePlan& plan) {
  size_t unknown = 0, small = 0;
  const PlanL3Group* worst = nullptr;
  for (const PlanL3Group& l3 : plan.l3_groups) {
    if (l3.l3_bytes == 0) {
      ++unknown;
    } else if (!l3.resident()) {
      ++small;
      if (!worst || l3.weight_bytes > worst->weight_bytes) worst = &l3;
    }
  }
  if (unknown > 0) {
    plan.notes.push_back(
        fmt::format("{} of {} L3 groups: size unknown, residency can't be planned; the residency "
                    "report measures it",
                    unknown, plan.l3_groups.size()));
  }
  if (small > 0) {
    // A stage's layers may need several groups, but not several sockets: these divide layers only.
    const auto [before, after] =
        plan.config.ends ? std::pair("", " such groups would hold the model")
                         : std::pair("a socket of ", " such groups would hold its layers");
    plan.notes.push_back(fmt::format(
        "{} of {} L3 groups: their weights (up to {:.1f} MB) exceed their budget (group {}: {:.1f} "
        "MB, {:.0f} % of {:.1f} MB): they will stream from memory; {}{}{}",
        small, plan.l3_groups.size(), static_cast<double>(worst->weight_bytes) * 1e-6,
        worst->id.value, static_cast<double>(worst->budget_bytes) * 1e-6,
        100 * plan.options.l3_fraction, static_cast<double>(worst->l3_bytes) * 1e-6, before,
        CeilDiv(plan.weight_bytes, std::max<uint64_t>(1, worst->budget_bytes)), after));
  }
}

void PlaceMemory(StagePlan& plan) {
  std::map<NumaNodeId, PlanNode> nodes;
  for (const PlanThread& thread : plan.threads)
    nodes[thread.numa_node].weight_bytes += thread.weight_bytes;
  const auto place_kv = [&](std::span<const PlanThread> threads, size_t slots,
                            std::span<const size_t> pools) {
    const std::vector<NumaNodeId> of_threads = NodesOf(threads);
    const attention_node::KvHomes homes(plan.config, threads.size(), of_threads);
    const attention_node::KvShape shape(plan.config, slots, plan.options.capacity.context, pools,
                                        plan.kv_classes);
    for (const auto& [node, bytes] : homes.Bytes(shape)) nodes[node].kv_bytes += bytes;
  };
  if (!plan.separated()) place_kv(plan.threads, plan.options.capacity.slots, plan.kv_pools);
  for (const PlanAttentionSocket& socket : plan.attention) {
    if (!socket.elsewhere) place_kv(socket.threads, socket.slots, socket.kv_pools);
  }
  for (auto& [id, node] : nodes) {
    node.id = id;
    plan.nodes.push_back(node);
  }
}

void NoteNodes(StagePlan& plan, const topology::Topology& topology) {
  for (const PlanNode& node : plan.nodes) {
    const auto of_machine =
        std::ranges::find(topology.numa_nodes(), node.id, &topology::NumaNode::id);
    const uint64_t needed = node.weight_bytes + node.kv_bytes;
    if (of_machine == topology.numa_nodes().end() || of_machine->memory_bytes == 0 ||
        needed <= of_machine->memory_bytes)
      continue;
    plan.notes.push_back(fmt::format(
        "NUMA node {} has {:.2f} GB of memory, its threads' weights and KV need {:.2f}: "
        "take cores of more nodes, or fewer --kv-tokens",
        node.id.value, of_machine->memory_bytes * 1e-9, needed * 1e-9));
  }
}

// Equal shares of experts keep all threads busy, but read what others keep: that costs nothing
// where all have the same L3, or read from the same memory anyway.
bool SharesExperts(const StagePlan& plan) {
  constexpr double kEven = 1.02;
  const bool one_memory =
      plan.l3_groups.size() == 1 ||
      (!plan.resident() && std::ranges::all_of(plan.threads, [&](const PlanThread& thread) {
        return thread.numa_node == plan.threads.front().numa_node;
      }));
  return one_memory && weight_node::FullestOfExperts(plan.config, plan.shards, 1) > kEven;
}

}  // namespace

size_t DefaultBatchTokens(const model::ModelConfig& config, const topology::Topology& topology,
                          bool alone) {
  const size_t l2 = topology.cores()[0].l2_bytes ? topology.cores()[0].l2_bytes : size_t{1} << 20;
  const size_t ffn = config.Most([](const model::LayerSpec& layer) { return layer.sizes.ffn; });
  const size_t row_bytes =
      kernels::ActRowBytes(CeilDiv(std::max(ffn, config.dim), kernels::kBlock));
  const auto rows = std::clamp<size_t>(l2 / row_bytes / 32 * 32, 64, 256);
  if (!alone) return rows;
  constexpr size_t kRowsOfExpert = 64, kMost = 1024;
  const size_t of_experts = config.Most([](const model::LayerSpec& layer) {
    const model::ExpertSpec& experts = layer.experts;
    return experts.count == 0 ? 0 : kRowsOfExpert * experts.count / experts.used;
  });
  return std::clamp(of_experts / 32 * 32, rows, kMost);
}

StagePlan MakeStagePlan(const model::ModelConfig& config, const topology::Topology& topology,
                        const PlanOptions& options) {
  StagePlan plan;
  plan.config = config;
  plan.options = options;
  plan.fingerprint = options.fingerprint;
  PlanOptions& o = plan.options;
  model::Capacity& capacity = o.capacity;
  if (!o.cores.empty()) o.threads = o.cores.size();
  if (o.threads == 0) o.threads = topology.cores().size();
  const size_t most_threads =
      std::min(kMaxThreads, std::max<size_t>(16, 4 * topology.cores().size()));
  if (o.threads > most_threads) {
    throw Error(
        "plan: {} threads (-t) on {} cores; expected at most {}: more would wait for each other",
        o.threads, topology.cores().size(), most_threads);
  }
  if (capacity.max_batch_tokens > kMaxBatchTokens) {
    throw Error("plan: micro-batches of {} rows (-ub); expected at most {}",
                capacity.max_batch_tokens, kMaxBatchTokens);
  }
  if (capacity.context == 0) capacity.context = attention_node::KvShape::DefaultContext(config);
  if (capacity.context > attention_node::KvShape::kMaxContext)
    throw Error("plan: a context of {} tokens; expected at most {}", capacity.context,
                attention_node::KvShape::kMaxContext);
  if (capacity.context > config.trained_context && config.trained_context != 0) {
    plan.notes.push_back(
        fmt::format("context {} is longer than the {} tokens that the model was trained with",
                    capacity.context, config.trained_context));
  }
  plan.config = model::ForContext(config, o.capacity.context);
  if (std::string text = model::LongRopeText(config, o.capacity.context); !text.empty())
    plan.notes.push_back(std::move(text));
  if (!o.attention.empty()) {
    capacity.slots = 0;
    for (const PlanOptions::Attention& socket : o.attention) capacity.slots += socket.slots;
  }
  if (capacity.slots == 0) throw Error("plan: at least one slot is needed");
  if (capacity.max_batch_tokens == 0)
    capacity.max_batch_tokens = DefaultBatchTokens(config, topology, true);
  if (o.few_rows == 0) o.few_rows = weight_node::OwnNormRows(config, o.threads);
  o.few_rows = std::min(o.few_rows, capacity.max_batch_tokens);
  if (!o.tuning) o.tuning = kernels::DefaultTuning(o.isa);

  const auto cores = o.cores.empty() ? topology.PickCores(o.threads) : o.cores;
  const auto cpus = o.cpus.empty() ? topology.CpusOf(cores) : o.cpus;
  const auto groups = topology.GroupsOf(cores);
  plan.shards = weight_node::MakeShardPlan(config, o.threads);
  for (size_t t = 0; t < o.threads; ++t) {
    const topology::Core& core = topology.core(cores[t]);
    const auto group = static_cast<size_t>(groups[t]);
    if (group >= plan.l3_groups.size()) plan.l3_groups.resize(group + 1);
    PlanL3Group& l3 = plan.l3_groups[group];
    l3.id = core.l3_group;
    l3.l3_bytes = topology.l3_group(core.l3_group).bytes;
    l3.budget_bytes = static_cast<uint64_t>(static_cast<double>(l3.l3_bytes) * o.l3_fraction);
    const uint64_t bytes = plan.shards.ThreadBytes(config, t);
    l3.weight_bytes += bytes;
    plan.weight_bytes += bytes;
    plan.threads.push_back({core.id, cpus[t], core.numa_node, groups[t], core.package, bytes});
  }
  if (o.threads > topology.cores().size()) {
    plan.notes.push_back(
        fmt::format("{} threads on {} cores: they will share them, and wait for each other",
                    o.threads, topology.cores().size()));
  }
  plan.embedding_bytes =
      (config.tied_embeddings || !config.ends ? 0 : weight_node::EmbeddingBytes(config)) +
      (config.ends ? weight_node::InputEmbeddingBytes(config) : 0);
  plan.kv_classes = attention_node::KvShape::ClassesOf(config, capacity);
  plan.state_slot_bytes = attention_node::StateShape(config).bytes();
  PlanAttention(plan, topology);
  if (!plan.separated()) {
    plan.kv_pools = !o.kv_pools.empty()
                        ? o.kv_pools
                        : attention_node::KvShape::Pools(plan.kv_classes, capacity.slots, capacity);
  }
  const attention_node::KvShape kv(config, capacity.slots, capacity.context, plan.kv_pools,
                                   plan.kv_classes);
  plan.kv_slot_bytes = kv.slot_bytes();
  plan.kv_chunks = kv.pool;
  plan.kv_bytes = kv.bytes();
  plan.expert_shares = SharesExperts(plan);
  NoteResidency(plan);
  if (topology.from_xml()) {
    plan.notes.push_back(
        fmt::format("kernels are those of this host ({}); the other machine's may differ (--isa)",
                    kernels::IsaName(o.isa)));
  }
  CheckMemory(plan, topology);
  PlaceMemory(plan);
  NoteNodes(plan, topology);
  if (!o.pinned) {
    for (PlanThread& thread : plan.threads) {
      thread.cpu = CpuId{};
      thread.numa_node = NumaNodeId{};
    }
  }
  return plan;
}

std::vector<PlanThread> ThreadsOn(const topology::Topology& topology, std::span<const CoreId> cores,
                                  std::span<const CpuId> cpus) {
  const auto groups = topology.GroupsOf({cores.begin(), cores.end()});
  std::vector<PlanThread> threads;
  for (size_t t = 0; t < cores.size(); ++t) {
    const topology::Core& core = topology.core(cores[t]);
    threads.push_back({cores[t], cpus[t], core.numa_node, groups[t], core.package, 0});
  }
  return threads;
}

size_t PlanAttentionSocket::groups() const {
  int most = 0;
  for (const PlanThread& thread : threads) most = std::max(most, thread.l3_group);
  return static_cast<size_t>(most) + 1;
}

threadpool::PoolOptions PoolOf(std::span<const PlanThread> threads, const sync::WaitPolicy& wait) {
  threadpool::PoolOptions pool{.cpus = {}, .group_of_thread = {}, .wait = wait};
  for (const PlanThread& thread : threads) {
    pool.cpus.push_back(thread.cpu);
    pool.group_of_thread.push_back(thread.l3_group);
    pool.package_of_thread.push_back(thread.package);
  }
  return pool;
}

std::vector<NumaNodeId> NodesOf(std::span<const PlanThread> threads) {
  std::vector<NumaNodeId> nodes;
  for (const PlanThread& thread : threads) nodes.push_back(thread.numa_node);
  return nodes;
}

size_t LogitRows(const model::ModelConfig& config, size_t max_batch_tokens) {
  constexpr size_t kLeast = 32;
  const size_t fit = (size_t{64} << 20) / (config.vocab * sizeof(float) + 1);
  return std::clamp(fit, std::min(kLeast, max_batch_tokens), max_batch_tokens);
}

bool StagePlan::resident() const {
  return std::all_of(l3_groups.begin(), l3_groups.end(),
                     [](const PlanL3Group& l3) { return l3.resident(); });
}

size_t StagePlan::l3_kv_tokens() const {
  if (separated() || !resident()) return 0;
  uint64_t room = 0;
  for (const PlanL3Group& l3 : l3_groups) room += l3.budget_bytes - l3.weight_bytes;
  // as SchedulerOptions::active_tokens counts them
  return room / std::max<uint64_t>(1, kv_slot_bytes / options.capacity.context);
}

size_t StagePlan::states() const {
  size_t states = 0;
  for (size_t i = 0; i < kv_pools.size(); ++i) {
    const model::KvClass& of = kv_classes[i % kv_classes.size()];
    states += of.states ? kv_pools[i] : 0;
  }
  return states;
}

uint64_t HashOf(const nlohmann::json& key) { return Fnv1a(key.dump()); }

uint64_t StagePlan::identity() const { return IdentityOf(fingerprint, config); }

uint64_t StagePlan::ExchangeHash() const {
  // The key: what defines the computation and the frames. Names of the machine are not part of it.
  nlohmann::json key = {identity(),
                        options.capacity.context,
                        options.capacity.slots,
                        options.capacity.max_batch_tokens,
                        options.few_rows,
                        threads.size()};
  for (const PlanAttentionSocket& socket : attention)
    key.push_back(
        {socket.name, socket.threads.size(), socket.groups(), socket.slots, socket.kv_chunks});
  return HashOf(key);
}

std::string KvTokensText(const model::Capacity& capacity) {
  std::string text;
  if (capacity.kv_tokens > 0) text += fmt::format(", {} of them together", capacity.kv_tokens);
  if (capacity.cached_tokens > 0)
    text += fmt::format(", and {} of ended sequences", capacity.cached_tokens);
  return text;
}

std::string KvClassesText(const model::ModelConfig& config, const model::Capacity& capacity) {
  const auto kv = attention_node::KvShape::OfSequence(config, capacity);
  const size_t shared =
      config.Sum([](const model::LayerSpec& layer) { return size_t{layer.kv_of.has_value()}; });
  const auto has_none = [](const model::KvClass& of) { return of.window == 0; };
  if (std::ranges::all_of(kv.classes, has_none) && shared == 0) return "";
  std::string text;
  for (size_t i = 0; i < kv.classes.size(); ++i) {
    if (kv.classes[i].states) continue;
    const size_t window = kv.classes[i].window;
    size_t layers = 0;
    for (size_t l = 0; l < config.layers; ++l)
      layers += kv.layers[l].of_class == i && !config.layer(l).kv_of;
    const size_t tokens =
        std::min(capacity.context, kv.sequence_chunks(i) * kernels::kChunkPositions);
    text += fmt::format(
        "{}{} layer{} {}KV of {} tokens, {:.2f} MB a slot", text.empty() ? "" : "; ", layers,
        layers == 1 ? "" : "s",
        window == 0 ? std::string("with ") : fmt::format("of windows of {} with ", window), tokens,
        static_cast<double>(kv.sequence_chunks(i) * kv.class_bytes[i]) * 1e-6);
  }
  if (shared != 0)
    text += fmt::format("; {} layer{} with that of others", shared, shared == 1 ? "" : "s");
  return text;
}

namespace {

// The kind of layers whose panels tables list: the first one's.
size_t TabledKind(const model::ModelConfig& config) {
  return config.layers == 0 ? 0 : config.KindOf(0);
}

const char* ResidencyText(const StagePlan& plan) {
  if (plan.resident()) return "all weights fit their L3 budget";
  double budget = 0;
  for (const PlanL3Group& l3 : plan.l3_groups) budget += static_cast<double>(l3.budget_bytes);
  return plan.ReadBytes(0) <= budget
             ? "not all weights fit their L3 budget; what every step reads does, without experts"
             : "not all weights fit their L3 budget";
}

}  // namespace

double StagePlan::ReadBytes(size_t rows) const {
  const auto all = static_cast<double>(weight_node::LayerBytes(config, 0, config.layers));
  return static_cast<double>(weight_bytes) - all +
         weight_node::LayerReadBytes(config, 0, config.layers, rows);
}

std::string StagePlan::Table() const {
  const auto& c = config;
  std::string out =
      fmt::format("model      {} ({}): {}, vocab {}, {:.1f} M parameters\n", c.name,
                  c.architecture_name, model::LayersText(c), c.vocab, c.parameters() * 1e-6);
  const std::string read = ReadText(c, [this](size_t rows) { return ReadBytes(rows); });
  out += fmt::format(
      "weights    {:.2f} MB {}{}\n", static_cast<double>(weight_bytes) * 1e-6,
      read.empty() ? std::string("read per token") : "in all, of which " + read,
      embedding_bytes ? fmt::format(", {:.2f} MB of embeddings looked up", embedding_bytes * 1e-6)
                      : std::string(" (embeddings tied)"));
  out += fmt::format("KV cache   {} slot{} x {} tokens{} = {:.2f} MB, INT8 ({} bytes a token)\n",
                     options.capacity.slots, options.capacity.slots == 1 ? "" : "s",
                     options.capacity.context, KvTokensText(options.capacity),
                     static_cast<double>(kv_bytes - states() * state_slot_bytes) * 1e-6,
                     (kv_slot_bytes - state_slot_bytes) / options.capacity.context);
  if (const std::string classes = KvClassesText(config, options.capacity); !classes.empty())
    out += fmt::format("           {}\n", classes);
  if (state_slot_bytes > 0) {
    out += fmt::format(
        "states     {} slot{} and {} kept for prompts that begin alike, x {:.2f} MB = {:.2f} MB, "
        "float32\n",
        options.capacity.slots, options.capacity.slots == 1 ? "" : "s",
        states() - options.capacity.slots, state_slot_bytes * 1e-6,
        static_cast<double>(states() * state_slot_bytes) * 1e-6);
  }
  out += fmt::format("kernels    {}; frames of up to {} rows\n", IsaName(options.isa),
                     options.capacity.max_batch_tokens);
  out += fmt::format("residency  {}\n", ResidencyText(*this));
  if (l3_kv_tokens() > 0)
    out += fmt::format("L3 room    KV of {} tokens fits beside the weights (--active-kv-tokens)\n",
                       l3_kv_tokens());
  out += fmt::format("balance    {}\n", weight_node::BalanceText(config, threads.size()));
  if (config.Most([](const model::LayerSpec& layer) { return layer.experts.count; }) > 0) {
    out +=
        expert_shares
            ? "experts    gate and up of the chosen ones are divided anew each step: the threads "
              "share one memory\n"
            : fmt::format(
                  "experts    each thread has units of all; of the chosen ones the fullest has "
                  "{:.2f} of the mean with 1 row, {:.2f} with 32\n",
                  weight_node::FullestOfExperts(config, shards, 1),
                  weight_node::FullestOfExperts(config, shards, 32));
  }
  if (nodes.size() > 1) {
    out += "\n  node       weights MB        KV MB\n";
    for (const PlanNode& node : nodes)
      out += fmt::format("  {:>4}  {:>15.2f} {:>12.2f}\n", node.id.value, node.weight_bytes * 1e-6,
                         node.kv_bytes * 1e-6);
  }
  out += "\n  L3 group      size MB   budget MB  weights MB  threads\n";
  for (size_t g = 0; g < l3_groups.size(); ++g) {
    const PlanL3Group& l3 = l3_groups[g];
    const auto n = std::count_if(threads.begin(), threads.end(), [&](const PlanThread& t) {
      return t.l3_group == static_cast<int>(g);
    });
    out += fmt::format("  {:>8}  {:>11.1f} {:>11.1f} {:>11.2f}  {:>7}\n", l3.id.value,
                       l3.l3_bytes * 1e-6, l3.budget_bytes * 1e-6, l3.weight_bytes * 1e-6, n);
  }
  out +=
      "\n  thread  core  cpu  node  L3   QKV panels     O panels    FFN units  down panels      "
      "lm_head  weights MB\n";
  for (size_t t = 0; t < threads.size(); ++t) {
    const weight_node::ThreadShard& s = shards.threads[t];
    const size_t kind = TabledKind(config);
    // first to last, as layers are printed
    const auto range = [](const weight_node::PanelRange& r) {
      return r.count() > 0 ? fmt::format("{}-{}", r.begin, r.end - 1) : "-";
    };
    // and of a panel that is cut, its chunks
    const auto with_parts = [&](weight_node::PanelMatrix matrix) {
      std::string before, behind;
      uint32_t first = 0, end = 0;
      for (const weight_node::PanelPart& part : s.parts.at(kind)) {
        if (part.matrix != matrix) continue;
        if (part.first()) {
          behind = fmt::format(" {}.0-{}", part.panel, part.chunks.end - 1);
        } else {
          if (before.empty()) first = part.chunks.begin;
          end = part.chunks.end;
          before = fmt::format("{}.{}-{} ", part.panel, first, end - 1);
        }
      }
      const weight_node::PanelRange& whole = s.of(kind, matrix);
      const bool cut = !before.empty() || !behind.empty();
      return fmt::format("{}{}{}", before, cut && whole.count() == 0 ? "" : range(whole), behind);
    };
    out += fmt::format(
        "  {:>6} {:>5} {:>4} {:>5} {:>3} {:>12} {:>12} {:>12} {:>12} {:>12} {:>11.2f}\n", t,
        threads[t].core.value, threads[t].cpu.value, threads[t].numa_node.value,
        threads[t].l3_group, range(s.of(kind, weight_node::PanelMatrix::kQkv)),
        with_parts(weight_node::PanelMatrix::kO), with_parts(weight_node::PanelMatrix::kFfn),
        with_parts(weight_node::PanelMatrix::kDown), range(s.lm_head()),
        threads[t].weight_bytes * 1e-6);
  }
  for (const PlanAttentionSocket& socket : attention) {
    std::string cpus;
    for (const PlanThread& thread : socket.threads)
      cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", thread.cpu.value);
    out += fmt::format("\n  attention socket {}: cpus {}, slots {}-{}, {:.2f} MB of KV cache\n",
                       socket.name, cpus, socket.first_slot.value, socket.end_slot().value - 1,
                       socket.kv_bytes * 1e-6);
  }
  for (const std::string& note : notes) out += fmt::format("\nnote: {}", note);
  if (!notes.empty()) out += '\n';
  return out;
}

nlohmann::json StagePlan::Json() const {
  nlohmann::json json = {{"isa", IsaName(options.isa)},
                         {"balance", shards.Balance(config)},
                         {"expert_shares", expert_shares},
                         {"l3_kv_tokens", l3_kv_tokens()},
                         {"read_bytes_per_token", ReadBytes(1)},
                         {"kv_classes", nlohmann::json::array()},
                         {"notes", notes},
                         {"attention_sockets", nlohmann::json::array()}};
  const auto kv = attention_node::KvShape::OfSequence(config, options.capacity);
  for (size_t i = 0; i < kv.classes.size(); ++i) {
    json["kv_classes"].push_back(
        {{"window", kv.classes[i].window},
         {"states", kv.classes[i].states},
         {"layers", std::ranges::count(kv.layers, i, &attention_node::KvShape::Layer::of_class)},
         {"chunks_per_slot", kv.sequence_chunks(i)},
         {"bytes_per_slot", kv.sequence_chunks(i) * kv.class_bytes[i]}});
  }
  for (const PlanL3Group& l3 : l3_groups) {
    json["l3_groups"].push_back({{"id", l3.id.value},
                                 {"bytes", l3.l3_bytes},
                                 {"budget_bytes", l3.budget_bytes},
                                 {"weight_bytes", l3.weight_bytes}});
  }
  for (const PlanNode& node : nodes) {
    json["numa_nodes"].push_back(
        {{"id", node.id.value}, {"weight_bytes", node.weight_bytes}, {"kv_bytes", node.kv_bytes}});
  }
  for (size_t t = 0; t < threads.size(); ++t) {
    const weight_node::ThreadShard& s = shards.threads[t];
    const size_t kind = TabledKind(config);
    auto range = [](const weight_node::PanelRange& r) { return nlohmann::json{r.begin, r.end}; };
    json["threads"].push_back({{"core", threads[t].core.value},
                               {"cpu", threads[t].cpu.value},
                               {"numa_node", threads[t].numa_node.value},
                               {"l3_group", threads[t].l3_group},
                               {"weight_bytes", threads[t].weight_bytes},
                               {"qkv_panels", range(s.of(kind, weight_node::PanelMatrix::kQkv))},
                               {"o_panels", range(s.of(kind, weight_node::PanelMatrix::kO))},
                               {"ffn_units", range(s.of(kind, weight_node::PanelMatrix::kFfn))},
                               {"down_panels", range(s.of(kind, weight_node::PanelMatrix::kDown))},
                               {"lm_head_panels", range(s.lm_head())}});
    for (const weight_node::PanelPart& part : s.parts.at(kind))
      json["threads"].back()["parts"].push_back({{"matrix", weight_node::NameOf(part.matrix)},
                                                 {"panel", part.panel},
                                                 {"first_chunk", part.chunks.begin},
                                                 {"chunks", part.chunks.count()}});
  }
  for (const PlanAttentionSocket& socket : attention) {
    nlohmann::json cpus = nlohmann::json::array();
    for (const PlanThread& thread : socket.threads) cpus.push_back(thread.cpu.value);
    json["attention_sockets"].push_back({{"name", socket.name},
                                         {"cpus", cpus},
                                         {"first_slot", socket.first_slot.value},
                                         {"slots", socket.slots},
                                         {"kv_bytes", socket.kv_bytes}});
    if (!socket.elsewhere) continue;
    const auto own = [](CpuId cpu) {
      return cpu.valid() ? nlohmann::json(cpu.value) : nlohmann::json();
    };
    json["attention_sockets"].back().update(
        {{"link_cpu", own(socket.link_cpu)}, {"link_cpu_there", own(socket.link_cpu_there)}});
  }
  return json;
}

}  // namespace larder::pipeline::plan
