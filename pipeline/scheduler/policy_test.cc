// Policies: what they let a micro-batch have, and what holds for all of them over random arrivals,
// ends, cancellations and losses.
#include "pipeline/scheduler/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <semaphore>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/sanitized_testing.h"
#include "base/temporary_folder_testing.h"
#include "pipeline/kv_store/chain_kv_tier.h"
#include "pipeline/kv_store/kv_mover.h"
#include "pipeline/scheduler/hostile_engine_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

constexpr double kMs = 1e6;

TEST(Policy, HasItsName) {
  for (const Policy policy : {Policy::kMixed, Policy::kDecodeFirst, Policy::kPhases, Policy::kAuto})
    EXPECT_EQ(PolicyByName(PolicyName(policy)), policy);
  EXPECT_FALSE(PolicyByName("fair"));
}

TEST(MixedPolicy, PromptsGetWhatTheStallAllows) {
  const auto rows = [](const PolicyOptions& options, ScheduleView view) {
    view.slots = 8;
    view.max_batch_tokens = 256;
    return MakePolicy(options)->Budget(view).prompt_rows;
  };
  const ScheduleView known = {
      .prefilling = 1, .decoding = 3, .decode_step_ns = 20 * kMs, .prompt_row_ns = 1 * kMs};
  EXPECT_EQ(rows({}, known), 180u) << "200 ms";
  EXPECT_EQ(rows({.max_stall_ms = 50}, known), 30u);
  EXPECT_EQ(rows({.max_stall_ms = 10}, known), 8u) << "never nothing";
  EXPECT_EQ(rows({.max_stall_ms = 0}, known), 256u);
  EXPECT_EQ(rows({.prompt_rows = 33}, known), 33u);
  EXPECT_EQ(rows({}, {.prefilling = 1, .decoding = 3}), 32u) << "costs are not known";
  // Nobody decodes, but another prompt may come.
  EXPECT_EQ(rows({}, {.prefilling = 1, .prompt_row_ns = 1 * kMs}), 200u);
  EXPECT_EQ(rows({.max_stall_ms = 10}, {.prefilling = 1, .prompt_row_ns = 1 * kMs}), 32u);
  EXPECT_EQ(rows({.max_stall_ms = 0}, {.prefilling = 1, .prompt_row_ns = 1 * kMs}), 256u);
  EXPECT_EQ(rows({}, {.prefilling = 1}), 32u) << "costs are not known";
  EXPECT_EQ(rows({}, {.decoding = 3}), 0u);
}

// What a Phased policy says of a view.
bool Decodes(SchedulePolicy& policy, const ScheduleView& view) {
  const RowBudget budget = policy.Budget(view);
  EXPECT_NE(budget.decode_rows == 0, budget.prompt_rows == 0) << "either prompts or answers";
  return budget.decode_rows > 0;
}

TEST(PhasesPolicy, ChangesAtHalfOfTheSlots) {
  const auto policy = MakePolicy({.policy = Policy::kPhases});
  const auto decodes = [&](size_t prefilling, size_t decoding) {
    return Decodes(
        *policy,
        {.slots = 8, .max_batch_tokens = 64, .prefilling = prefilling, .decoding = decoding});
  };
  EXPECT_FALSE(decodes(8, 0));
  EXPECT_FALSE(decodes(5, 3)) << "who is ready waits for the others";
  EXPECT_TRUE(decodes(0, 8));
  EXPECT_TRUE(decodes(3, 5));
  EXPECT_FALSE(decodes(4, 4)) << "half of the slots have new prompts";
  EXPECT_TRUE(decodes(0, 8));
  EXPECT_FALSE(decodes(1, 0)) << "nobody decodes";
  EXPECT_EQ(policy->transitions(), 4u);
}

TEST(DecodeFirstPolicy, ComputesPromptsOnlyWhileNobodyDecodes) {
  const auto policy = MakePolicy({.policy = Policy::kDecodeFirst});
  const auto decodes = [&](size_t prefilling, size_t decoding) {
    return Decodes(
        *policy,
        {.slots = 8, .max_batch_tokens = 64, .prefilling = prefilling, .decoding = decoding});
  };
  EXPECT_FALSE(decodes(8, 0));
  EXPECT_TRUE(decodes(0, 8));
  EXPECT_TRUE(decodes(7, 1));
  EXPECT_FALSE(decodes(8, 0));
}

TEST(PhasesPolicy, PromptsDoNotHoldAnswersForLongerThanTheStall) {
  const auto policy = MakePolicy({.policy = Policy::kPhases, .max_stall_ms = 10});
  const auto decodes = [&](double at_ms, size_t prefilling, size_t decoding) {
    return Decodes(*policy, {.now_ns = static_cast<uint64_t>(at_ms * kMs),
                             .slots = 8,
                             .max_batch_tokens = 64,
                             .prefilling = prefilling,
                             .decoding = decoding});
  };
  EXPECT_FALSE(decodes(1, 8, 0));
  EXPECT_FALSE(decodes(50, 8, 0)) << "nobody waits";
  EXPECT_FALSE(decodes(55, 7, 1));
  EXPECT_TRUE(decodes(61, 7, 1));
  EXPECT_TRUE(decodes(65, 7, 1)) << "decoding has as long";
  EXPECT_FALSE(decodes(71, 7, 1));
}

// Many sequences, some at once and some later; each with what it gets alone.
struct Traffic {
  // background: whether every third is of the background.
  Traffic(size_t count, const EngineLimits& limits, uint32_t seed, bool background) {
    std::mt19937 random(seed);
    const auto below = [&](size_t n) { return random() % n; };
    std::vector<std::vector<int32_t>> beginnings(5);
    for (auto& beginning : beginnings) {
      const size_t tokens = 20 + 14 * static_cast<size_t>(&beginning - beginnings.data());
      for (size_t i = 0; i < tokens; ++i)
        beginning.push_back(static_cast<int32_t>(below(limits.vocab)));
    }
    size_t step = 0;
    for (size_t i = 0; i < count; ++i) {
      Wish wish;
      if (below(2) == 0) wish.prompt = beginnings[below(beginnings.size())];
      const size_t more = 1 + below(below(10) == 0 ? 60 : 12);
      for (size_t k = 0; k < more; ++k)
        wish.prompt.push_back(static_cast<int32_t>(below(limits.vocab)));
      wish.prompt.resize(std::min(wish.prompt.size(), limits.capacity.context - 8));
      wish.most = 1 + below(below(20) == 0 ? 80 : 12);
      wish.seed = static_cast<uint32_t>(1 + i);
      wish.tenant = below(3);
      if (below(10) == 0) wish.cancel_after = below(6);
      if (below(4) == 0) wish.late = 1 + static_cast<uint32_t>(below(5));
      step += below(4) == 0 ? below(20) : 0;
      wish.arrives = step;
      wish.background = background && i % 3 == 0;
      wishes.push_back(std::move(wish));
    }
  }
  // The tokens that the sequence gets alone, with as many as fit.
  static std::vector<int32_t> Alone(const Wish& wish, const EngineLimits& limits) {
    Outcome outcome;
    TestSequence sequence(wish, outcome);
    uint64_t state = 0;
    size_t length = wish.prompt.size();
    for (const int32_t token : wish.prompt) state = HostileEngine::After(state, token);
    std::vector<float> logits(limits.vocab);
    for (;;) {
      HostileEngine::LogitsOf(state, logits);
      while (!sequence.ready(0)) {
      }
      const std::optional<int32_t> next = sequence.Next(logits);
      if (!next || length + 1 >= limits.capacity.context) return outcome.tokens;
      state = HostileEngine::After(state, *next);
      ++length;
    }
  }
  std::vector<Wish> wishes;
};

struct Case {
  const char* name;
  PolicyOptions policy;
  double loss = 0;
  size_t sockets = 0;    // attention sockets; 0: colocated
  size_t kv_chunks = 0;  // of each socket; 0: a full context, 8 chunks, for each slot
  uint64_t files = 0;    // bytes for chunks in files; 0: none
  size_t active_tokens = 0;
  std::optional<double> elsewhere = {};  // files are of the sockets that hold KV: how often one
                                         // fails
  bool orders = false;                   // slots are saved, restored and erased meanwhile
  size_t window = 0;                     // of a second class of KV memory; 0: none
  bool all_windows = false;              // of the only one
  bool states = false;                   // whether there are those of recurrent layers
};

void PrintTo(const Case& of, std::ostream* out) { *out << of.name; }

// Sees how many tokens of KV the running sequences of a socket have together, and what these need,
// where there is more than one.
class ActiveTokensIntake : public TestIntake {
 public:
  ActiveTokensIntake(const std::vector<Wish>& wishes, const Scheduler& scheduler,
                     const KvChunksShape& shape)
      : TestIntake(wishes), scheduler_(scheduler), shape_(shape), ends_(shape.slot_ends) {
    if (ends_.empty()) ends_.push_back(SlotId(static_cast<int32_t>(scheduler.slots().size())));
  }
  void StepDone() override {
    size_t begin = 0;
    for (const SlotId end : ends_) {
      size_t running = 0, tokens = 0;
      uint64_t bytes = 0;
      for (size_t id = begin; id < end.index(); ++id) {
        const SlotStatus& slot = scheduler_.slots()[id];
        if (slot.state.load() == SlotStatus::kIdle) continue;
        ++running;
        tokens += slot.cached_tokens.load();
        bytes += shape_.NeededBytes(slot.cached_tokens.load());
      }
      if (running > 1) most_tokens_ = std::max(most_tokens_, tokens);
      if (running > 1) most_bytes_ = std::max(most_bytes_, bytes);
      begin = end.index();
    }
    TestIntake::StepDone();
  }
  size_t most_tokens() const { return most_tokens_; }
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  const Scheduler& scheduler_;
  const KvChunksShape shape_;
  std::vector<SlotId> ends_;
  size_t most_tokens_ = 0;
  uint64_t most_bytes_ = 0;
};

// Orders for slots from another thread, one every four steps unless the last one is not done:
// what was saved is restored again, elsewhere too, and beginnings of wishes are restored by
// computing.
class OrderingIntake : public ActiveTokensIntake {
 public:
  OrderingIntake(const std::vector<Wish>& wishes, Scheduler& scheduler, const KvChunksShape& shape,
                 bool orders)
      : ActiveTokensIntake(wishes, scheduler, shape), orders_(orders) {
    thread_ = std::thread([this, &wishes, &scheduler] {
      std::mt19937 random(23);
      for (wanted_.acquire(); !stop_; wanted_.acquire()) {
        SlotOrder order{.kind = static_cast<SlotOrder::Kind>(random() % 3),
                        .slot = SlotId(static_cast<int32_t>(random() % scheduler.slots().size()))};
        if (order.kind == SlotOrder::Kind::kRestore && !saved_.empty() && random() % 2 == 0) {
          order.contents = saved_[random() % saved_.size()];
        } else if (order.kind == SlotOrder::Kind::kRestore) {
          const Wish& wish = wishes[random() % wishes.size()];
          order.contents.tokens = wish.prompt;
          order.contents.tenant = wish.tenant;
        }
        scheduler.Execute(
            order, [this] { posted_.release(); }, 1000);
        if (order.error.empty()) ++done[static_cast<size_t>(order.kind)];
        if (order.error.empty() && order.kind == SlotOrder::Kind::kSave) {
          EXPECT_EQ(order.contents.tokens.size(), order.tokens);
          saved_.push_back(std::move(order.contents));
        }
        pending_ = false;
      }
    });
  }
  ~OrderingIntake() override { End(); }
  // Also of what is done.
  void End() {
    if (!thread_.joinable()) return;
    stop_ = true;
    wanted_.release();
    thread_.join();
  }
  // However busy the machine is, the other thread gets to notice that its order is done: otherwise
  // there would be few orders, and none of some kind.
  void StepDone() override {
    if (orders_ && ++steps_ % 4 == 0 && !pending_.exchange(true)) {
      wanted_.release();
      posted_.acquire();
      posted_at_ = steps_;
    } else if (pending_ && steps_ - posted_at_ > kSoon) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    ActiveTokensIntake::StepDone();
  }

  size_t done[3] = {};  // [kind]

 private:
  static constexpr size_t kSoon = 4;  // steps
  const bool orders_;
  size_t steps_ = 0, posted_at_ = 0;
  std::atomic<bool> pending_{false}, stop_{false};
  std::counting_semaphore<> wanted_{0}, posted_{0};
  std::vector<SlotContents> saved_;
  std::thread thread_;
};

// A tier whose disk keeps up with the simulated clock, however busy the machine is: it has one job
// at a time, loads before stores, and one that is not done at the kLooks-th look after it began is
// waited for. So the files that are written and read are never none.
class PromptTier final : public KvTier {
 public:
  explicit PromptTier(std::unique_ptr<KvTier> mover) : mover_(std::move(mover)) {}

  size_t Find(std::span<const int32_t> tokens, uint64_t tenant) const override {
    return mover_->Find(tokens, tenant);
  }
  void FindPieces(KvJob& job) const override { mover_->FindPieces(job); }
  size_t chunk_positions() const override { return mover_->chunk_positions(); }
  const KvFilesStatus& status() const override { return mover_->status(); }
  void Start(KvJob job) override {
    Started(job);
    (job.kind == KvJob::Kind::kLoad ? loads_ : stores_).push_back(std::move(job));
    Begin();
  }
  std::optional<KvJob> Take() override {
    if (mover_->jobs() == 0) return std::nullopt;
    if (looks_ == 0) mover_->Wait(-1);
    looks_ -= looks_ > 0;
    std::optional<KvJob> job = mover_->Take();
    if (!job) return std::nullopt;
    GivenBack(*job);
    Begin();
    return job;
  }
  std::optional<KvJob> Drop() override {
    if (stores_.empty()) return std::nullopt;
    std::optional<KvJob> job = std::move(stores_.front());
    stores_.pop_front();
    GivenBack(*job);
    return job;
  }
  void Wait(int) override { looks_ = 0; }  // the next look waits for the job
  bool needs_steps() const override { return false; }
  void Abandon() override {
    mover_->Abandon();
    loads_.clear();
    stores_.clear();
    Forgotten();
  }

 private:
  static constexpr size_t kLooks = 32;
  void Begin() {
    std::deque<KvJob>& queue = loads_.empty() ? stores_ : loads_;
    if (mover_->jobs() > 0 || queue.empty()) return;
    KvJob job = std::move(queue.front());
    queue.pop_front();
    mover_->Start(std::move(job));
    looks_ = kLooks;
  }

  const std::unique_ptr<KvTier> mover_;
  std::deque<KvJob> loads_, stores_;  // that have not begun
  size_t looks_ = 0;                  // until the mover's job is given back
};

class PolicyProperty : public testing::TestWithParam<Case> {};

TEST_P(PolicyProperty, EachSequenceEndsOnceWithTheTokensThatItGetsAlone) {
  const Case& with = GetParam();
  EngineLimits limits = {.capacity = {.slots = 8,
                                      .context = 128,
                                      .max_batch_tokens = 32,
                                      .max_in_flight = with.sockets > 0 ? 3u : 1u},
                         .vocab = 24,
                         .max_logits = 16,
                         .can_be_lost = with.loss > 0};
  for (size_t i = 1; i <= with.sockets; ++i)
    limits.attention_slot_ends.push_back(SlotId(static_cast<int32_t>(8 * i / with.sockets)));
  const size_t sequences = with.files > 0 ? 4'000 : LARDER_SANITIZED ? 3'000 : 12'000;
  const Traffic traffic(sequences, limits, 7, with.orders);
  VirtualClock clock;
  HostileEngine engine(limits, clock, with.loss, 11, with.kv_chunks, with.elsewhere, with.window,
                       with.all_windows, with.states);
  const TemporaryFolder folder;
  std::unique_ptr<KvFiles> files;
  std::unique_ptr<KvTier> tier;
  if (with.files > 0) {
    files = std::make_unique<KvFiles>(KvFilesOptions{
        .folder = folder / "kv",
        .most_bytes = with.files,
        .chunk_positions = HostileEngine::kChunkPositions,
        .chunk_bytes =
            std::vector(engine.kv().shape().classes.size(),
                        with.elsewhere ? sizeof(KvTicket) : engine.kv_channel().Memory(0).size()),
        .classes = engine.kv().shape().classes});
    tier = std::make_unique<PromptTier>(std::make_unique<KvMover>(*files, KvMover::Options()));
    if (with.elsewhere) {
      tier = std::make_unique<ChainKvTier>(engine.kv_channel(), *files, std::move(tier),
                                           [](const std::string&) {});
    }
  }
  Scheduler scheduler(engine, {.policy = with.policy,
                               .active_tokens = with.active_tokens,
                               .patience_ms = 1 << 30,
                               .clock = &clock,
                               .tier = tier.get()});
  OrderingIntake intake(traffic.wishes, scheduler, engine.kv().shape(), with.orders);
  scheduler.Run(intake);
  intake.End();
  for (const size_t done : intake.done) EXPECT_EQ(done > 0, with.orders);
  if (with.active_tokens > 0) {
    EXPECT_GT(scheduler.status().yielded.load(), 0u);
    // Between two looks every sequence may begin one more chunk.
    EXPECT_LE(intake.most_tokens(),
              with.active_tokens + limits.capacity.slots * HostileEngine::kChunkPositions);
    const KvChunksShape& shape = engine.kv().shape();
    EXPECT_LE(intake.most_bytes(), with.active_tokens * shape.NeededBytes(limits.capacity.context) /
                                           limits.capacity.context +
                                       limits.capacity.slots * shape.NeededBytes(1));
  }

  if (files) {
    EXPECT_GT(tier->status().written.load(), 0u);
    EXPECT_GT(tier->status().read.load(), 0u);
    // How many files are moved, and so how many fail, depends on how busy the machine is.
    EXPECT_LE(tier->status().refused.load(), engine.failed_loads);
    EXPECT_LE(tier->status().failed.load(), engine.failed_stores);
    if (with.elsewhere.value_or(0) > 0) {
      EXPECT_GT(engine.failed_loads + engine.failed_stores, 0u);
    }
    if (with.loss == 0) {
      EXPECT_EQ(tier->status().refused.load() > 0, engine.failed_loads > 0);
      EXPECT_EQ(tier->status().failed.load() > 0, engine.failed_stores > 0);
    }
    EXPECT_LE(files->status().bytes.load(), with.files);
    EXPECT_EQ(tier->jobs(), 0u);
  }
  size_t lost = 0, whole = 0, again = 0;
  for (size_t i = 0; i < traffic.wishes.size(); ++i) {
    const Wish& wish = traffic.wishes[i];
    const Outcome& outcome = intake.outcomes[i];
    ASSERT_TRUE(outcome.end) << "sequence " << i << " never ended";
    std::vector<int32_t> alone = Traffic::Alone(wish, limits);
    if (*outcome.end == SequenceEnd::kCancelled) {
      EXPECT_LT(wish.cancel_after, SIZE_MAX);
      ASSERT_LE(outcome.tokens.size(), alone.size());
      alone.resize(outcome.tokens.size());
    } else if (*outcome.end == SequenceEnd::kUnavailable) {
      ++lost;
      alone.resize(std::min(alone.size(), outcome.tokens.size()));
    } else {
      ++whole;
      EXPECT_TRUE(*outcome.end == SequenceEnd::kComplete ||
                  *outcome.end == SequenceEnd::kContextFull);
    }
    ASSERT_EQ(outcome.tokens, alone) << "sequence " << i;
    again += static_cast<size_t>(std::max(outcome.admissions - 1, 0));
  }
  if (with.loss == 0 && with.kv_chunks == 0 && with.active_tokens == 0 && !with.orders) {
    EXPECT_LE(again, scheduler.status().yielded.load() + scheduler.status().preempted.load())
        << "those that left for shorter prompts, or where there are files for their chunks";
  }
  EXPECT_GT(whole, traffic.wishes.size() * 3 / 4);
  // A long prompt waits for shorter ones, and is lost with its slot meanwhile.
  EXPECT_LE(lost, with.loss > 0 ? traffic.wishes.size() / 200 : 0u)
      << "given up after many losses in a row";
  EXPECT_LE(engine.most_rows, limits.capacity.max_batch_tokens);
  EXPECT_EQ(engine.in_flight(), 0u) << "nothing is left";
  for (const SlotStatus& slot : scheduler.slots()) EXPECT_EQ(slot.state.load(), SlotStatus::kIdle);
  EXPECT_EQ(scheduler.status().waiting.load(), 0u);
  EXPECT_EQ(scheduler.status().lost.load() > 0, with.loss > 0);
  // Where few run there are chunks enough, and what they give back is no pause. Elsewhere a full
  // context for each slot is enough but for what files are being written of: that depends on how
  // busy the machine is.
  const bool tight = with.kv_chunks > 0 && with.active_tokens == 0;
  if (tight || with.files == 0) {
    EXPECT_EQ(scheduler.status().parked.load() > 0, with.loss > 0 || tight);
    EXPECT_EQ(scheduler.status().preempted.load() > 0, tight);
  }
  EXPECT_GT(scheduler.status().reused_tokens.load(), 0u);
  for (SlotId slot(0); slot.index() < engine.kv().lists(); ++slot) engine.kv().Reset(slot);
  for (AttentionId socket(0); socket.index() < std::max<size_t>(with.sockets, 1); ++socket)
    EXPECT_EQ(engine.kv().free(socket), engine.kv().pool(socket)) << "every chunk was given back";
  EXPECT_EQ(engine.kv().shared(), 0u);
  // Of mixed none; of the others at most two for each sequence that ends.
  if (with.policy.policy == Policy::kMixed) {
    EXPECT_EQ(scheduler.status().transitions.load(), 0u);
  } else if (!with.policy.max_stall_ms) {
    // Between two changes to decoding at least half of the slots got a sequence, or nobody decoded,
    // which is more often the slower the disk is.
    EXPECT_LE(scheduler.status().transitions.load(), traffic.wishes.size() * (files ? 2 : 1));
    EXPECT_GT(scheduler.status().transitions.load(), 100u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Traffic, PolicyProperty,
    testing::Values(
        Case{"mixed", {.policy = Policy::kMixed}, 0, 0},
        Case{"mixed_lost", {.policy = Policy::kMixed}, 0.02, 2},
        Case{"decode_first", {.policy = Policy::kDecodeFirst}, 0.01, 0},
        Case{"mixed_active", {.policy = Policy::kMixed}, 0, 0, 0, 0, 100},
        Case{"mixed_active_lost", {.policy = Policy::kMixed}, 0.01, 2, 0, 0, 80},
        Case{"phases_active_tight", {.policy = Policy::kPhases}, 0, 0, 12, 0, 100},
        Case{"mixed_tight", {.policy = Policy::kMixed}, 0, 0, 9},
        Case{"mixed_tight_lost", {.policy = Policy::kMixed}, 0.01, 2, 8},
        Case{"decode_first_tight", {.policy = Policy::kDecodeFirst}, 0, 2, 8},
        Case{"phases_tight", {.policy = Policy::kPhases}, 0, 0, 12},
        Case{"mixed_files", {.policy = Policy::kMixed}, 0, 2, 0, 1 << 20},
        Case{"mixed_tight_files", {.policy = Policy::kMixed}, 0, 0, 9, 20'000},
        Case{"phases_tight_files", {.policy = Policy::kPhases}, 0, 2, 8, 60'000},
        Case{"mixed_files_elsewhere", {.policy = Policy::kMixed}, 0, 2, 0, 1 << 20, 0, 0.0},
        Case{
            "mixed_files_elsewhere_lost", {.policy = Policy::kMixed}, 0.01, 2, 0, 1 << 20, 0, 0.02},
        Case{"mixed_tight_files_elsewhere", {.policy = Policy::kMixed}, 0, 0, 9, 60'000, 0, 0.02},
        Case{"phases_tight_files_elsewhere_lost",
             {.policy = Policy::kPhases},
             0.005,
             2,
             8,
             60'000,
             0,
             0.02},
        Case{.name = "mixed_orders", .policy = {.policy = Policy::kMixed}, .orders = true},
        Case{.name = "mixed_windows", .policy = {.policy = Policy::kMixed}, .window = 10},
        Case{.name = "phases_windows_lost",
             .policy = {.policy = Policy::kPhases},
             .loss = 0.01,
             .sockets = 2,
             .window = 1},
        Case{.name = "mixed_tight_windows",
             .policy = {.policy = Policy::kMixed},
             .sockets = 2,
             .kv_chunks = 9,
             .window = 20},
        Case{.name = "decode_first_windows_active",
             .policy = {.policy = Policy::kDecodeFirst},
             .active_tokens = 150,
             .window = 33},
        Case{.name = "mixed_all_windows",
             .policy = {.policy = Policy::kMixed},
             .window = 10,
             .all_windows = true},
        Case{.name = "phases_all_windows_lost",
             .policy = {.policy = Policy::kPhases},
             .loss = 0.01,
             .sockets = 2,
             .window = 2,
             .all_windows = true},
        Case{.name = "mixed_all_windows_orders",
             .policy = {.policy = Policy::kMixed},
             .orders = true,
             .window = 20,
             .all_windows = true},
        Case{.name = "mixed_windows_orders",
             .policy = {.policy = Policy::kMixed},
             .orders = true,
             .window = 10},
        Case{.name = "mixed_windows_files",
             .policy = {.policy = Policy::kMixed},
             .files = 1 << 20,
             .window = 10},
        Case{.name = "phases_tight_windows_files_elsewhere_lost",
             .policy = {.policy = Policy::kPhases},
             .loss = 0.005,
             .sockets = 2,
             .kv_chunks = 9,
             .files = 60'000,
             .elsewhere = 0.02,
             .window = 20},
        Case{.name = "mixed_all_windows_files",
             .policy = {.policy = Policy::kMixed},
             .files = 1 << 20,
             .window = 20,
             .all_windows = true},
        Case{.name = "mixed_states", .policy = {.policy = Policy::kMixed}, .states = true},
        Case{.name = "mixed_tight_states_orders",
             .policy = {.policy = Policy::kMixed},
             .sockets = 2,
             .kv_chunks = 9,
             .orders = true,
             .states = true},
        Case{.name = "mixed_states_windows_orders",
             .policy = {.policy = Policy::kMixed},
             .orders = true,
             .window = 20,
             .states = true},
        Case{.name = "phases_states_windows_lost",
             .policy = {.policy = Policy::kPhases},
             .loss = 0.01,
             .sockets = 2,
             .window = 10,
             .states = true},
        Case{.name = "mixed_states_files",
             .policy = {.policy = Policy::kMixed},
             .files = 1 << 20,
             .states = true},
        Case{.name = "mixed_states_windows_files_elsewhere",
             .policy = {.policy = Policy::kMixed},
             .sockets = 2,
             .files = 1 << 20,
             .elsewhere = 0.1,
             .window = 10,
             .states = true},
        Case{.name = "phases_tight_states_files_elsewhere_lost",
             .policy = {.policy = Policy::kPhases},
             .loss = 0.005,
             .kv_chunks = 9,
             .files = 60'000,
             .elsewhere = 0.02,
             .states = true},
        Case{.name = "mixed_tight_orders",
             .policy = {.policy = Policy::kMixed},
             .sockets = 2,
             .kv_chunks = 9,
             .files = 60'000,
             .orders = true},
        Case{.name = "mixed_files_elsewhere_orders",
             .policy = {.policy = Policy::kMixed},
             .sockets = 2,
             .files = 1 << 20,
             .elsewhere = 0.02,
             .orders = true},
        Case{.name = "phases_tight_files_elsewhere_lost_orders",
             .policy = {.policy = Policy::kPhases},
             .loss = 0.005,
             .sockets = 2,
             .kv_chunks = 9,
             .files = 60'000,
             .elsewhere = 0.02,
             .orders = true},
        Case{"phases", {.policy = Policy::kPhases}, 0, 2},
        Case{"phases_stall_lost", {.policy = Policy::kPhases, .max_stall_ms = 0.5}, 0.02, 0}),
    [](const auto& of) { return of.param.name; });

// Prompts of one token's answer, and how many prompt rows all had been given when each came and
// when it had its token.
class CountedIntake : public Intake {
 public:
  struct Prompt {
    size_t tokens, arrives;  // arrives: in rows
    size_t came_at = 0, done_at = 0;
    bool done = false;
  };
  CountedIntake(std::vector<Prompt> of, const Scheduler& scheduler)
      : prompts(std::move(of)), scheduler_(scheduler), outcomes_(prompts.size()) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      // None begins as another.
      wishes_.push_back({.prompt = std::vector<int32_t>(prompts[i].tokens, 5), .most = 1});
      for (size_t k = 0, n = i; k < std::min<size_t>(prompts[i].tokens, 4); ++k, n /= 20)
        wishes_.back().prompt[k] = static_cast<int32_t>(n % 20);
    }
  }
  std::unique_ptr<Sequence> Take() override {
    if (next_ == prompts.size() || prompts[next_].arrives > rows()) return nullptr;
    prompts[next_].came_at = rows();
    const size_t i = next_++;
    return std::make_unique<Counted>(wishes_[i], outcomes_[i], prompts[i], *this);
  }
  void StepDone() override {}
  bool WaitForWork(int) override {
    if (next_ == prompts.size()) return false;
    prompts[next_].arrives = 0;
    return true;
  }
  size_t rows() const { return scheduler_.status().prefill_rows.load(); }

  std::vector<Prompt> prompts;

 private:
  struct Counted : TestSequence {
    Counted(const Wish& wish, Outcome& outcome, Prompt& of, const CountedIntake& from)
        : TestSequence(wish, outcome), prompt(of), intake(from) {}
    void Ended(SequenceEnd end, const std::string& why) override {
      prompt.done_at = intake.rows();
      prompt.done = end == SequenceEnd::kComplete;
      TestSequence::Ended(end, why);
    }
    Prompt& prompt;
    const CountedIntake& intake;
  };
  const Scheduler& scheduler_;
  std::vector<Wish> wishes_;
  std::vector<Outcome> outcomes_;
  size_t next_ = 0;
};

constexpr EngineLimits kFewSlots = {
    .capacity = {.slots = 4, .context = 8192, .max_batch_tokens = 64},
    .vocab = 24,
    .max_logits = 16};

// Whatever waits in front of it: the step in progress, its own rows, and the oldest's share of
// them.
TEST(PolicyFairness, AShortPromptDoesNotWaitForLongOnes) {
  for (const size_t longs : {1u, 3u, 4u, 40u}) {
    std::vector<CountedIntake::Prompt> prompts;
    for (size_t i = 0; i < longs; ++i) prompts.push_back({6000 + 10 * i, 0});
    for (size_t i = 0; i < 5; ++i) prompts.push_back({20 + 50 * i, 1000 + 900 * i});
    VirtualClock clock;
    HostileEngine engine(kFewSlots, clock, 0, 1);
    Scheduler scheduler(engine, {.clock = &clock});
    CountedIntake intake(prompts, scheduler);
    scheduler.Run(intake);
    size_t all = 0;
    for (const auto& prompt : intake.prompts) {
      EXPECT_TRUE(prompt.done);
      all += prompt.tokens;
      if (prompt.tokens > 256) continue;
      EXPECT_LE(prompt.done_at - prompt.came_at, prompt.tokens * 4 / 3 + 2 * 64)
          << prompt.tokens << " behind " << longs;
    }
    EXPECT_EQ(intake.rows(), all) << "nothing was computed twice";
  }
}

// However short prompts come: each is done within four times its own rows and those of the prompts
// in front of it, and of the few that may overtake it while it waits for a slot.
TEST(PolicyFairness, NoPromptStarves) {
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> size(4.5, 1.8);
    std::exponential_distribution<double> pause(seed % 3 == 0 ? 0.02 : 0.004);
    std::vector<CountedIntake::Prompt> prompts;
    double at = 0;
    for (size_t i = 0; i < 300; ++i) {
      at += pause(random);
      prompts.push_back(
          {static_cast<size_t>(std::clamp(size(random), 1.0, 8000.0)), static_cast<size_t>(at)});
    }
    VirtualClock clock;
    HostileEngine engine(kFewSlots, clock, 0, 1);
    Scheduler scheduler(engine, {.clock = &clock});
    CountedIntake intake(prompts, scheduler);
    scheduler.Run(intake);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto& prompt = intake.prompts[i];
      ASSERT_TRUE(prompt.done);
      size_t in_front = 0;
      for (size_t k = 0; k < i; ++k) {
        if (intake.prompts[k].done_at > prompt.came_at) in_front += intake.prompts[k].tokens;
      }
      EXPECT_LE(prompt.done_at - prompt.came_at, 4 * (in_front + 9 * prompt.tokens) + 64 * 8)
          << "seed " << seed << ", prompt " << i << " of " << prompt.tokens;
    }
  }
}

// A prompt that arrives while others decode to the end of a long context is not left behind.
TEST(PolicyFairness, NobodyStarves) {
  const EngineLimits limits = {.capacity = {.slots = 4, .context = 2048, .max_batch_tokens = 32},
                               .vocab = 24,
                               .max_logits = 16};
  for (const Policy policy : {Policy::kMixed, Policy::kPhases}) {
    std::vector<Wish> wishes;
    // Two that go on for ever, and a stream of short ones beside them.
    for (uint32_t i = 0; i < 2; ++i)
      wishes.push_back({.prompt = {1, 2, 3}, .most = 4000, .seed = 1 + i});
    for (uint32_t i = 0; i < 200; ++i)
      wishes.push_back(
          {.prompt = std::vector<int32_t>(30, 5), .most = 5, .seed = 10 + i, .arrives = 5 * i});
    VirtualClock clock;
    HostileEngine engine(limits, clock, 0, 1);
    Scheduler scheduler(engine, {.policy = {.policy = policy}, .clock = &clock});
    TestIntake intake(wishes);
    scheduler.Run(intake);
    for (const Outcome& outcome : intake.outcomes) EXPECT_TRUE(outcome.end);
    // The long ones take some 2,040 steps each; the short ones go along with them.
    EXPECT_LT(scheduler.status().steps.load(), 3500u) << PolicyName(policy);
  }
}

}  // namespace
}  // namespace larder::pipeline::scheduler
