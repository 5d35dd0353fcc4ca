// What somebody orders to be done with a slot's KV cache: Scheduler::Execute.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "pipeline/scheduler/scheduler.h"

namespace larder::pipeline::inline scheduler {
namespace {

// A prompt for nobody yet.
class SavedTokens final : public Sequence {
 public:
  SavedTokens(SlotOrder& order, const Intake& intake)
      : tokens_(std::move(order.contents.tokens)),
        tenant_(order.contents.tenant),
        on_given_up_(std::move(order.on_given_up)),
        intake_(intake) {}
  std::span<const int32_t> prompt() const override { return tokens_; }
  uint64_t tenant() const override { return tenant_; }
  bool background() const override { return true; }
  bool cancelled() const override { return intake_.stopping(); }
  void Admitted(size_t) override {}
  // No token is to be chosen; the state is not used.
  Wanted wanted() const override { return Wanted::kHiddenOfLast; }
  std::optional<int32_t> Next(std::span<const float>) override { return std::nullopt; }
  void Ended(SequenceEnd end, const std::string& why) override {
    if (end != SequenceEnd::kComplete && on_given_up_ && !intake_.stopping()) on_given_up_(why);
  }

 private:
  const std::vector<int32_t> tokens_;
  const uint64_t tenant_;
  const std::function<void(const std::string&)> on_given_up_;
  const Intake& intake_;
};

std::string NoRoomFor(size_t tokens) {
  return fmt::format("there is no room for its {} tokens now; try again later", tokens);
}

}  // namespace

void Scheduler::Execute(SlotOrder& order, const std::function<void()>& nudge, int most_ms) {
  std::unique_lock lock(order_mutex_);
  order_ = &order;
  ordered_.store(true, std::memory_order_relaxed);
  lock.unlock();
  nudge();
  lock.lock();
  order_done_.wait_for(lock, std::chrono::milliseconds(most_ms),
                       [this] { return order_ == nullptr; });
  if (std::exchange(order_, nullptr) != nullptr)
    order.error = "the server is too busy to do it now";
  ordered_.store(false, std::memory_order_relaxed);
}

// Called between steps. Keys and values that are in this process are read and written here, so
// nothing else may be writing any.
void Scheduler::TakeOrder(const Intake& intake) {
  ordered_slot_.reset();
  if (!ordered_.load(std::memory_order_relaxed)) return;
  if (!engine_.kv_channel().Memory(0).empty()) {
    if (in_flight_ > 0) return;
    // A copy that the next micro-batch is to make must find its source.
    const auto is_copy = [](const model::KvUpdate& update) { return update.copied_positions > 0; };
    if (std::ranges::any_of(kv_.updates(), is_copy)) return;
  }
  const std::lock_guard lock(order_mutex_);
  if (order_ == nullptr || !Do(*order_, intake)) return;
  order_ = nullptr;
  order_done_.notify_all();
  ShowKvChunks();
}

// Returns false: later, between other steps.
bool Scheduler::Do(SlotOrder& order, const Intake& intake) {
  if (order.slot < SlotId(0) || order.slot >= end_of_slots()) {
    order.error = fmt::format("there is no slot {}; there are {}", order.slot.value, limits_.slots);
    order.later = false;
    return true;
  }
  const Active* active = slots_[order.slot.index()].active.get();
  if (active != nullptr && active->background && order.kind != SlotOrder::Kind::kSave) {
    ordered_slot_ = order.slot;
    if (active->rows_in_flight > 0 || active->loading || active->ended) return false;
    Yield(order.slot);
    active = nullptr;
  }
  if (active != nullptr) {
    order.error = fmt::format("slot {} is in use; try again later", order.slot.value);
  } else if (order.kind != SlotOrder::Kind::kRestore && IsOfAnother(order)) {
    order.error = fmt::format("slot {} has nothing of yours", order.slot.value);
    order.later = false;
    order.foreign = true;
  } else if (order.kind == SlotOrder::Kind::kErase) {
    order.tokens = slots_[order.slot.index()].tokens.size();
    Forget(order.slot);
  } else if (order.kind == SlotOrder::Kind::kSave) {
    Save(order);
  } else if (order.contents.bytes.empty() || engine_.kv_channel().Memory(0).empty()) {
    ComputeSaved(order, intake);
  } else {
    RestoreSaved(order);
  }
  return true;
}

bool Scheduler::IsOfAnother(const SlotOrder& order) const {
  const Slot& slot = slots_[order.slot.index()];
  return order.owner && !slot.tokens.empty() && slot.tenant != *order.owner;
}

void Scheduler::Save(SlotOrder& order) {
  const Slot& slot = slots_[order.slot.index()];
  const size_t tokens = kv_.Usable(order.slot, slot.tokens.size());
  const size_t chunks = CeilDiv(tokens, kv_.shape().chunk_positions);
  if (tokens == 0) {
    order.error = fmt::format("slot {} has no tokens", order.slot.value);
    order.later = false;
    return;
  }
  order.contents.tokens.assign(slot.tokens.begin(),
                               slot.tokens.begin() + static_cast<std::ptrdiff_t>(tokens));
  order.contents.tenant = slot.tenant;
  order.contents.bytes.reserve(chunks * engine_.kv_channel().Memory(0).size());
  for (size_t i = 0; i < chunks; ++i) {
    const std::span<const uint8_t> memory = engine_.kv_channel().Memory(kv_.chunk(order.slot, i));
    order.contents.bytes.insert(order.contents.bytes.end(), memory.begin(), memory.end());
  }
  order.tokens = tokens;
}

// In the order's slot, as the prompt of a sequence that wants no token.
void Scheduler::ComputeSaved(SlotOrder& order, const Intake& intake) {
  if (lost_) {
    order.error = "the KV cache can't be filled now: the chain is lost; try again later";
    return;
  }
  if (!queue_.empty() && !queue_.front()->background) {
    order.error = "requests wait for slots; try again later";
    return;
  }
  const SlotId id = order.slot;
  const AttentionId socket = kv_.socket_of(id);
  const size_t tokens = order.contents.tokens.size();
  auto active = std::make_unique<Active>(std::make_unique<SavedTokens>(order, intake));
  active->restored = true;
  Place place = ChoosePlace(*active).value_or(Place{.slot = id, .source = id});
  if (kv_.socket_of(place.slot) != socket) place = {.slot = id, .source = id};
  if (place.slot != id) {
    if (place.tokens == 0) place.source = id;
    if (place.source < end_of_slots()) place.takes = false;  // it is shared, not cut
    place.slot = id;
  }
  FindStored(*active, place);
  if (!HasRoom(ChunksNeeded(*active, place.tokens), place) || !MayRunToo(*active, socket)) {
    order.error = NoRoomFor(tokens);
    return;
  }
  Begin(place, std::move(active));
  order.tokens = tokens;
}

void Scheduler::RestoreSaved(SlotOrder& order) {
  const SlotId id = order.slot;
  Slot& slot = slots_[id.index()];
  const size_t tokens = order.contents.tokens.size();
  const size_t chunks = CeilDiv(tokens, kv_.shape().chunk_positions);
  const AttentionId socket = kv_.socket_of(id);
  if (!HasRoom(chunks, {.slot = id, .source = id})) {
    order.error = NoRoomFor(tokens);
    return;
  }
  Forget(id);
  while (kv_.free(socket) < chunks && (ShortenOldest(socket, id, id) || DropStores())) {
  }
  if (kv_.Grow(id, chunks) < chunks) {
    Forget(id);
    order.error = NoRoomFor(tokens);
    return;
  }
  const uint8_t* from = order.contents.bytes.data();
  for (size_t i = 0; i < chunks; ++i) {
    const std::span<uint8_t> memory = engine_.kv_channel().Memory(kv_.chunk(id, i));
    std::memcpy(memory.data(), from, memory.size());
    from += memory.size();
  }
  kv_.Extend(id, tokens);
  slot.tokens.assign(order.contents.tokens.begin(), order.contents.tokens.end());
  slot.tenant = order.contents.tenant;
  slot.last_used = ++uses_;
  slot_status_[id.index()].cached_tokens.store(static_cast<uint32_t>(tokens),
                                               std::memory_order_relaxed);
  order.tokens = tokens;
}

}  // namespace larder::pipeline::scheduler
