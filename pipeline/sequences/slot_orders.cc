#include "pipeline/sequences/slot_orders.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/memory.h"

namespace larder::pipeline::inline sequences {
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

SlotOrders::SlotOrders(TokenEngine& engine, SlotTable& slots, StoredChunks& stored,
                       WaitingQueue& queue, Running& running, const RightOfWay& right_of_way)
    : channel_(engine.kv_channel()),
      slots_(slots),
      stored_(stored),
      queue_(queue),
      running_(running),
      right_of_way_(right_of_way) {}

void SlotOrders::Execute(SlotOrder& order, const std::function<void()>& nudge, int most_ms) {
  std::unique_lock lock(mutex_);
  order_ = &order;
  ordered_.store(true, std::memory_order_relaxed);
  lock.unlock();
  nudge();
  lock.lock();
  done_.wait_for(lock, std::chrono::milliseconds(most_ms), [this] { return order_ == nullptr; });
  if (std::exchange(order_, nullptr) != nullptr)
    order.error = "the server is too busy to do it now";
  ordered_.store(false, std::memory_order_relaxed);
}

// Called between steps. Keys and values that are in this process are read and written here, so
// nothing else may be writing any.
void SlotOrders::Take(const Intake& intake, bool in_flight, bool lost) {
  waits_for_.reset();
  if (!ordered_.load(std::memory_order_relaxed)) return;
  if (HasMemory()) {
    if (in_flight) return;
    // A copy that the next micro-batch is to make must find its source.
    const auto is_copy = [](const model::KvUpdate& update) { return update.copied_positions > 0; };
    if (std::ranges::any_of(slots_.kv().updates(), is_copy)) return;
  }
  const std::lock_guard lock(mutex_);
  if (order_ == nullptr || !Do(*order_, intake, lost)) return;
  order_ = nullptr;
  done_.notify_all();
  slots_.ShowChunks();
}

// Returns false: later, between other steps.
bool SlotOrders::Do(SlotOrder& order, const Intake& intake, bool lost) {
  if (order.slot < SlotId(0) || order.slot >= slots_.end()) {
    order.error = fmt::format("there is no slot {}; there are {}", order.slot.value,
                              slots_.limits().capacity.slots);
    order.later = false;
    return true;
  }
  const Active* active = slots_[order.slot].active.get();
  if (active != nullptr && active->background && order.kind != SlotOrder::Kind::kSave) {
    waits_for_ = order.slot;
    if (active->rows_in_flight > 0 || active->loading || active->ended) return false;
    running_.Yield(order.slot);
    active = nullptr;
  }
  if (active != nullptr) {
    order.error = fmt::format("slot {} is in use; try again later", order.slot.value);
  } else if (order.kind != SlotOrder::Kind::kRestore && IsOfAnother(order)) {
    order.error = fmt::format("slot {} has nothing of yours", order.slot.value);
    order.later = false;
    order.foreign = true;
  } else if (order.kind == SlotOrder::Kind::kErase) {
    order.tokens = slots_[order.slot].tokens.size();
    slots_.Forget(order.slot);
  } else if (order.kind == SlotOrder::Kind::kSave) {
    Save(order);
  } else if (order.contents.pieces.empty() || !HasMemory()) {
    ComputeSaved(order, intake, lost);
  } else {
    RestoreSaved(order);
  }
  return true;
}

bool SlotOrders::IsOfAnother(const SlotOrder& order) const {
  const Slot& slot = slots_[order.slot];
  return order.owner && !slot.tokens.empty() && slot.tenant != *order.owner;
}

void SlotOrders::Save(SlotOrder& order) {
  const Slot& slot = slots_[order.slot];
  const size_t tokens = slots_.kv().Usable(order.slot, slot.tokens.size());
  if (tokens == 0) {
    order.error = fmt::format("slot {} has no tokens", order.slot.value);
    order.later = false;
    return;
  }
  order.contents.tokens.assign(slot.tokens.begin(),
                               slot.tokens.begin() + static_cast<std::ptrdiff_t>(tokens));
  order.contents.tenant = slot.tenant;
  order.tokens = tokens;
  if (!HasMemory()) return;
  for (const KvPiece& piece : slots_.kv().PiecesAt(order.slot, tokens)) {
    order.contents.pieces.push_back({.of_class = piece.of_class,
                                     .place = static_cast<uint32_t>(piece.index),
                                     .bytes = channel_.Memory(piece.chunk).Read()});
  }
}

// In the order's slot, as the prompt of a sequence that wants no token.
void SlotOrders::ComputeSaved(SlotOrder& order, const Intake& intake, bool lost) {
  if (lost) {
    order.error = "the KV cache can't be filled now: the chain is lost; try again later";
    return;
  }
  if (queue_.any_in_front()) {
    order.error = "requests wait for slots; try again later";
    return;
  }
  const SlotId id = order.slot;
  const AttentionId socket = slots_.kv().socket_of(id);
  const size_t tokens = order.contents.tokens.size();
  auto active = std::make_unique<Active>(std::make_unique<SavedTokens>(order, intake));
  active->restored = true;
  Place place = slots_.ChoosePlace(*active).value_or(Place{.slot = id, .source = id});
  if (slots_.kv().socket_of(place.slot) != socket) place = {.slot = id, .source = id};
  if (place.slot != id) {
    if (place.tokens == 0) place.source = id;
    if (place.source < slots_.end()) place.takes = false;  // it is shared, not cut
    place.slot = id;
  }
  stored_.Find(*active, place);
  if (!slots_.HasRoom(slots_.ChunksNeeded(*active, place.tokens), place) ||
      !right_of_way_.MayRunToo(*active, socket)) {
    order.error = NoRoomFor(tokens);
    return;
  }
  running_.Begin(place, std::move(active));
  order.tokens = tokens;
}

void SlotOrders::RestoreSaved(SlotOrder& order) {
  const SlotId id = order.slot;
  KvChunks& kv = slots_.kv();
  const size_t tokens = order.contents.tokens.size();
  const size_t chunks = std::min(CeilDiv(tokens, slots_.chunk_positions()), kv.most_chunks());
  const AttentionId socket = kv.socket_of(id);
  if (!slots_.HasRoom(chunks, {.slot = id, .source = id})) {
    order.error = NoRoomFor(tokens);
    return;
  }
  std::vector<KvPiece> saved;
  for (const SlotPiece& piece : order.contents.pieces)
    saved.push_back({.of_class = piece.of_class, .index = piece.place});
  slots_.Forget(id);
  while (!kv.GrowAt(id, tokens, saved)) {
    if (kv.Short(socket) && (slots_.ShortenOldest(socket, std::array{id}) || stored_.DropStores()))
      continue;
    slots_.Forget(id);
    order.error = NoRoomFor(tokens);
    return;
  }
  for (const KvPiece& piece : kv.PiecesAt(id, tokens)) {
    const auto from = std::ranges::find_if(order.contents.pieces, [&](const SlotPiece& one) {
      return one.of_class == piece.of_class && one.place == piece.index;
    });
    LARDER_CHECK(from != order.contents.pieces.end());
    channel_.Memory(piece.chunk).Write(from->bytes);
  }
  kv.Extend(id, tokens);
  Slot& slot = slots_[id];
  slot.tokens.assign(order.contents.tokens.begin(), order.contents.tokens.end());
  slot.tenant = order.contents.tenant;
  slots_.Use(id);
  slots_.ShowTokens(id);
  order.tokens = tokens;
}

}  // namespace larder::pipeline::sequences
