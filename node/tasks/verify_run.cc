#include "node/tasks/verify_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/fnv.h"
#include "base/scratch_folder.h"
#include "kernels/formats/kv_page.h"
#include "model/config/split.h"
#include "node/service/signals.h"
#include "pipeline/chain/chain_plan.h"
#include "pipeline/engine/engine.h"
#include "pipeline/kv_store/kv_files.h"
#include "pipeline/kv_store/kv_store.h"
#include "pipeline/plan/identity.h"
#include "pipeline/plan/socket_waits.h"

namespace larder::node::inline tasks {
namespace {

using pipeline::Engine;
using pipeline::TokenRow;

constexpr size_t kSlots = 4;
constexpr size_t kChunk = kernels::kChunkPositions;
constexpr uint32_t kSeed = 7;

std::string Threads(size_t count) {
  return fmt::format("{} {}", count, count == 1 ? "thread" : "threads");
}

class Verification {
 public:
  Verification(const VerifySpec& spec, const std::function<void(const VerifiedMode&)>& report)
      : spec_(spec),
        report_(report),
        config_(model::ReadModelConfig(*spec.file)),
        tokens_(RandomTokens(0)) {}

  std::vector<VerifiedMode> All() {
    if (config_.part.kind != model::ModelPart::Kind::kWhole)
      throw Error("{}: holds a part of a model; verify needs a file of all of it", config_.name);
    Colocated();
    for (const size_t threads : {size_t{1}, spec_.threads + 1}) {
      if (threads == spec_.threads) continue;
      With(Threads(threads), {.threads = threads});
    }
    for (const kernels::Isa isa : {kernels::Isa::kAvx512Vnni, kernels::Isa::kAvxVnni,
                                   kernels::Isa::kAvx2, kernels::Isa::kScalar}) {
      if (isa == spec_.isa || !kernels::HostHas(isa)) continue;
      if (isa == kernels::Isa::kScalar && !spec_.scalar) continue;
      With(fmt::format("instruction set {}", kernels::IsaName(isa)), {.isa = isa});
    }
    With("attention on a socket of its own", {.attention = true});
    if (config_.layers > config_.layers_together()) Chain();
    if (tokens_.size() > kChunk) Restart();
    return std::move(modes_);
  }

 private:
  struct Form {
    size_t threads = 0;                    // 0: spec's
    std::optional<kernels::Isa> isa = {};  // nullopt: spec's
    bool attention = false;
  };

  std::vector<int32_t> RandomTokens(uint32_t stream) const {
    std::mt19937 random(kSeed + stream);
    std::vector<int32_t> tokens(spec_.positions);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % config_.vocab);
    return tokens;
  }

  pipeline::PlanOptions OptionsOf(const Form& form) const {
    pipeline::PlanOptions options;
    options.threads = form.threads > 0 ? form.threads : spec_.threads;
    options.isa = form.isa.value_or(spec_.isa);
    options.capacity.slots = kSlots;
    options.capacity.context = tokens_.size();
    if (form.attention) {
      options.attention.push_back(
          {.name = "attention", .cores = spec_.machine.PickCores(1), .cpus = {}, .slots = kSlots});
    }
    return options;
  }
  pipeline::ChainOptions WaitsOf(const pipeline::StagePlan& plan) const {
    const pipeline::SocketWaits waits = pipeline::WaitsOf(plan, spec_.machine);
    pipeline::ChainOptions options;
    options.wait = waits.weight;
    options.attention_waits = waits.attention;
    return options;
  }
  std::unique_ptr<Engine> Make(const Form& form) const {
    const pipeline::StagePlan plan =
        pipeline::MakeStagePlan(config_, spec_.machine, OptionsOf(form));
    return std::make_unique<Engine>(spec_.file, plan, WaitsOf(plan));
  }

  TokenRow RowAt(size_t position) const {
    return {tokens_[position], SlotId(0), static_cast<uint32_t>(position),
            position + kVerified >= tokens_.size()};
  }
  void Keep(const Engine& engine, size_t row) {
    const std::span<const float> logits = engine.logits(row);
    hashes_.push_back(Fnv1a({reinterpret_cast<const char*>(logits.data()), logits.size_bytes()}));
  }
  // From position `first` on, `piece` positions at a time.
  void Run(Engine& engine, size_t first, size_t piece) {
    std::vector<TokenRow> rows;
    for (size_t begin = first; begin < tokens_.size(); begin += piece) {
      rows.clear();
      for (size_t i = begin; i < std::min(begin + piece, tokens_.size()); ++i)
        rows.push_back(RowAt(i));
      engine.Run(rows);
      for (size_t row = 0, logits = 0; row < rows.size(); ++row) {
        if (rows[row].logits) Keep(engine, logits++);
      }
    }
  }
  void Report(std::string name) {
    VerifiedMode mode{.name = std::move(name), .hash = kFnvStart};
    for (const uint64_t hash : hashes_)
      mode.hash = Fnv1a({reinterpret_cast<const char*>(&hash), sizeof(hash)}, mode.hash);
    if (modes_.empty()) first_ = hashes_;
    const auto differs = std::ranges::mismatch(hashes_, first_).in2 - first_.begin();
    if (hashes_ != first_)
      mode.differs_at = static_cast<int64_t>(tokens_.size() - kVerified) + differs;
    hashes_.clear();
    report_(mode);
    modes_.push_back(std::move(mode));
    ThrowIfInterrupted();
  }
  void With(std::string name, const Form& form) {
    const std::unique_ptr<Engine> engine = Make(form);
    Run(*engine, 0, tokens_.size());
    Report(std::move(name));
  }

  void Colocated() {
    const std::unique_ptr<Engine> engine = Make({});
    const auto again = [&](std::string name, size_t piece) {
      engine->Reset(SlotId(0));
      Run(*engine, 0, piece);
      Report(std::move(name));
    };
    again(Threads(spec_.threads) + ", the prompt at once", tokens_.size());
    again("the prompt in pieces of 61", 61);
    again("token by token", 1);
    InABatch(*engine);
  }
  // With other sequences at other positions.
  void InABatch(Engine& engine) {
    std::vector<std::vector<int32_t>> tokens;
    for (uint32_t slot = 0; slot < kSlots; ++slot) tokens.push_back(RandomTokens(slot));
    engine.Reset(SlotId(0));
    for (size_t i = 0; i < tokens_.size(); ++i) {
      std::vector<TokenRow> rows = {RowAt(i)};
      for (size_t slot = 1; slot < kSlots && i >= 5 * slot; ++slot) {  // each begins later
        const size_t position = i - 5 * slot;
        rows.push_back({tokens[slot][position], SlotId(static_cast<int32_t>(slot)),
                        static_cast<uint32_t>(position), rows[0].logits});
      }
      engine.Run(rows);
      if (rows[0].logits) Keep(engine, 0);
    }
    Report(fmt::format("in a batch of {} sequences", kSlots));
  }

  void Chain() {
    pipeline::PlanOptions options = OptionsOf({});
    options.threads = 1;
    options.capacity.max_batch_tokens = 64;
    options.few_rows = 8;
    pipeline::ChainPlan chain;
    chain.cluster = "verify";
    chain.config = config_;
    chain.capacity.context = options.capacity.context;
    chain.capacity.slots = options.capacity.slots;
    chain.capacity.max_batch_tokens = options.capacity.max_batch_tokens;
    chain.capacity.max_in_flight = 2;
    std::vector<pipeline::StagePlan> stages;
    const size_t half = std::min(config_.layers / 2, config_.layers - config_.layers_together());
    for (const auto& [first, layers] :
         {std::pair{size_t{0}, half}, {half, config_.layers - half}}) {
      stages.push_back(
          pipeline::MakeStagePlan(model::LayersOf(config_, first, layers), spec_.machine, options));
      chain.DivideLike(stages.back());
      chain.stages.push_back({fmt::format("stage{}", stages.size()), first, layers, {}});
    }
    const pipeline::StagePlan ends =
        pipeline::MakeStagePlan(model::EndsOf(config_), spec_.machine, options);
    Engine engine(spec_.file, chain, ends, stages, WaitsOf(ends));
    Run(engine, 0, tokens_.size());
    Report("two stages and a serving socket, chained");
  }

  // The first chunk of keys and values comes from a file that another engine wrote.
  void Restart() {
    const ScratchFolder folder("larder-verify");
    const std::span<const int32_t> begins = std::span(tokens_).first(kChunk);
    pipeline::KvFilesOptions options{
        .folder = folder.path() + "/kv",
        .most_bytes = UINT64_MAX,
        .model = pipeline::IdentityOf(model::Fingerprint(*spec_.file), config_),
        .chunk_positions = kChunk};
    {
      const std::unique_ptr<Engine> engine = Make({});
      std::vector<TokenRow> rows;
      for (size_t i = 0; i < kChunk; ++i) rows.push_back(RowAt(i));
      for (TokenRow& row : rows) row.logits = false;
      engine->Run(rows);
      options.classes = engine->kv().shape().classes;
      options.chunk_bytes = pipeline::ChunkBytes(engine->kv().shape(), engine->kv_channel());
      const std::vector<pipeline::KvPiece> pieces = engine->kv().Pieces(SlotId(0), 1);
      pipeline::KvFiles files(options);
      for (const pipeline::KvPiece& piece : pieces)
        files.Write(begins, 0, piece.of_class, engine->kv_channel().Memory(piece.chunk));
    }
    const std::unique_ptr<Engine> engine = Make({.threads = 1});
    pipeline::KvFiles files(options);
    if (engine->kv().Grow(SlotId(0), files.Find(begins, 0)) != 1)
      throw Error("{}: the files of a chunk are not found again", options.folder);
    for (const pipeline::KvPiece& piece : engine->kv().Pieces(SlotId(0), 1))
      files.Read(begins, 0, piece.of_class, engine->kv_channel().Memory(piece.chunk));
    engine->kv().Extend(SlotId(0), kChunk);
    Run(*engine, kChunk, tokens_.size());
    Report(fmt::format("after a restart, {} positions from files", kChunk));
  }

  const VerifySpec& spec_;
  const std::function<void(const VerifiedMode&)>& report_;
  const model::ModelConfig config_;
  const std::vector<int32_t> tokens_;
  std::vector<uint64_t> hashes_, first_;  // hashes of each position's logits, in this mode and in
                                          // the first
  std::vector<VerifiedMode> modes_;
};

}  // namespace

std::vector<VerifiedMode> VerifyBits(const VerifySpec& spec,
                                     const std::function<void(const VerifiedMode&)>& report) {
  return Verification(spec, report).All();
}

}  // namespace larder::node::tasks
