#include "pipeline/kv_store/chain_kv_tier.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace larder::pipeline::inline kv_store {
namespace {

constexpr size_t kStoresAtOnce = 8;  // chunks; the other places are for loads
constexpr int kLookMs = 1;           // between frames without rows
constexpr double kStuckS = 30;       // for an order, then the chain is taken for lost

}  // namespace

ChainKvTier::ChainKvTier(KvChannel& channel, const KvFiles& index, std::unique_ptr<KvTier> tickets,
                         std::function<void(const std::string&)> on_problem)
    : channel_(channel),
      book_(*channel.orders()),
      index_(index),
      on_problem_(std::move(on_problem)),
      tickets_(std::move(tickets)) {
  LARDER_CHECK(index.options().chunk_bytes.front() == sizeof(KvTicket));
  ShowFiles();
}

ChainKvTier::~ChainKvTier() { Abandon(); }

void ChainKvTier::Start(KvJob job) {
  LARDER_CHECK(!job.pieces.empty() &&
               (job.pieces.back().index + 1) * chunk_positions() == job.tokens.size());
  Started(job);
  if (job.kind == KvJob::Kind::kStore) {
    stores_.push_back(std::move(job));
  } else {
    Moving& moving = moving_.emplace_back(Moving{.id = ++last_id_, .job = std::move(job)});
    std::vector<size_t> all(moving.job.pieces.size());
    std::iota(all.begin(), all.end(), size_t{0});
    moving.tickets.resize(all.size());
    MoveTickets(moving, KvJob::Kind::kLoad, std::move(all));
  }
}

// Reads, writes or removes the tickets of these pieces.
void ChainKvTier::MoveTickets(Moving& moving, KvJob::Kind kind, std::vector<size_t> pieces) {
  const KvJob& job = moving.job;
  moving.with = std::move(pieces);
  const size_t chunks = job.pieces[moving.with.back()].index + 1;
  KvJob inner{.kind = kind,
              .slot = SlotId(moving.id),
              .tokens = {job.tokens.begin(),
                         job.tokens.begin() + static_cast<ptrdiff_t>(chunks * chunk_positions())},
              .tenant = job.tenant,
              .pieces = {}};
  for (const size_t i : moving.with) {
    KvPiece piece = job.pieces[i];
    piece.moves = true;
    piece.memory = topology::ScatteredBytes(
        {reinterpret_cast<uint8_t*>(&moving.tickets[i]), sizeof(KvTicket)});
    inner.pieces.push_back(piece);
  }
  tickets_->Start(std::move(inner));
}

// The job's pieces from `first` on can't be loaded: the tickets of those behind the first go, too,
// because they are stored again together. The job is done when they have gone: who ends before
// that would find them and store nothing.
void ChainKvTier::Forget(Moving& moving, size_t first) {
  std::vector<size_t> pieces(moving.job.pieces.size() - first);
  std::iota(pieces.begin(), pieces.end(), first);
  moving.phase = Moving::Phase::kForgetsTickets;
  MoveTickets(moving, KvJob::Kind::kForget, std::move(pieces));
}

void ChainKvTier::TakeTickets() {
  while (const std::optional<KvJob> moved = tickets_->Take()) {
    const auto moving = std::ranges::find(moving_, moved->slot.value, &Moving::id);
    LARDER_CHECK(moving != moving_.end());
    const bool load = moving->job.kind == KvJob::Kind::kLoad;
    if (moved->kind == KvJob::Kind::kLoad) {
      const std::vector<KvPiece>& pieces = moving->job.pieces;
      const auto behind = pieces.begin() + static_cast<ptrdiff_t>(load ? moved->done : 0);
      if (!load || std::any_of(pieces.begin(), behind, [](const auto& of) { return of.moves; })) {
        BeginOrders(*moving, moved->done);
        continue;
      }
    }
    if (load) {
      moving->job.done = std::max(moving->job.done, moving->job.there());
    } else {
      moving->job.done = moved->done;
      status_.written.fetch_add(moved->done, std::memory_order_relaxed);
    }
    Finish(*moving);
    moving_.erase(moving);
  }
}

// Begins the oldest store, if none has begun.
void ChainKvTier::BeginStore() {
  const auto stores = [](const Moving& of) { return of.job.kind == KvJob::Kind::kStore; };
  if (stores_.empty() || std::ranges::any_of(moving_, stores)) return;
  Moving& moving =
      moving_.emplace_back(Moving{.id = ++last_id_, .job = std::move(stores_.front())});
  stores_.pop_front();
  // What a store before has brought meanwhile: sequences that ended together begin alike.
  KvJob& job = moving.job;
  FindPieces(job);
  if (job.moving() == 0) {
    Finish(moving);
    moving_.pop_back();
    return;
  }
  moving.tickets.resize(job.pieces.size());
  std::vector<size_t> there;
  for (size_t i = 0; i < job.pieces.size(); ++i) {
    const auto number = [this] { return uint64_t{random_()} << 32 | random_(); };
    if (job.pieces[i].moves) {
      moving.tickets[i] = {number(), number()};
    } else {
      there.push_back(i);
    }
  }
  if (there.empty()) {
    BeginOrders(moving, 0);
  } else {
    MoveTickets(moving, KvJob::Kind::kLoad, std::move(there));
  }
}

// The first `known` of the tickets that were to be read were. The last piece is ordered first, and
// those that do not move are touched at last: what goes first when there is no room is the end of a
// sequence, never what others begin with.
void ChainKvTier::BeginOrders(Moving& moving, size_t known) {
  const KvJob& job = moving.job;
  const bool load = job.kind == KvJob::Kind::kLoad;
  const size_t end = load ? known : job.pieces.size();
  for (size_t i = 0; i < known; ++i) {
    if (!job.pieces[moving.with[i]].moves) moving.to_order.push_back(moving.with[i]);
  }
  moving.moved.resize(end);
  for (size_t i = 0; i < end; ++i) {
    moving.moved[i] = !job.pieces[i].moves;
    if (job.pieces[i].moves) moving.to_order.push_back(i);
  }
  moving.phase = Moving::Phase::kOrders;
  moving.since_ns = NowNs();
}

bool ChainKvTier::Order(Moving& moving) {
  const KvJob& job = moving.job;
  const auto ended = std::erase_if(moving.ordered, [&](const Moving::Ordered& one) {
    const KvOrderBook::State state = book_.state(one.place);
    if (state != KvOrderBook::State::kDone && state != KvOrderBook::State::kFailed) return false;
    if (moving.moved[one.piece] == 0) moving.moved[one.piece] = state == KvOrderBook::State::kDone;
    book_.Free(one.place);
    return true;
  });
  if (ended > 0) moving.since_ns = NowNs();
  const bool load = job.kind == KvJob::Kind::kLoad;
  while (!moving.to_order.empty() && (load || moving.ordered.size() < kStoresAtOnce)) {
    const size_t at = moving.to_order.back();
    const KvPiece& piece = job.pieces[at];
    const auto place = book_.Add(!piece.moves ? KvOrder::Kind::kTouch
                                 : load       ? KvOrder::Kind::kLoad
                                              : KvOrder::Kind::kStore,
                                 moving.tickets[at], piece.chunk);
    if (!place) break;
    moving.to_order.pop_back();
    moving.ordered.push_back({at, *place});
  }
  return moving.to_order.empty() && moving.ordered.empty();
}

void ChainKvTier::Watch() {
  for (const Moving& moving : moving_) {
    if (!moving.ordered.empty() && SecondsSince(moving.since_ns) > kStuckS)
      channel_.Lose("a socket has not moved a KV chunk for 30 s: its disk hangs?");
  }
}

bool ChainKvTier::AfterOrders(Moving& moving) {
  KvJob& job = moving.job;
  // Only a beginning is of use.
  const auto begins =
      static_cast<size_t>(std::ranges::find(moving.moved, 0) - moving.moved.begin());
  const size_t wanted = moving.moved.size();
  std::vector<size_t> moved;
  for (size_t i = 0; i < begins; ++i) {
    if (job.pieces[i].moves) moved.push_back(i);
  }
  if (job.kind == KvJob::Kind::kLoad) {
    job.done = begins;
    status_.read.fetch_add(moved.size(), std::memory_order_relaxed);
    if (begins == wanted) return true;
    status_.refused.fetch_add(1, std::memory_order_relaxed);
    Forget(moving, begins);
    return false;
  }
  if (begins < wanted) {
    status_.failed.fetch_add(1, std::memory_order_relaxed);
    if (!std::exchange(failing_, true))
      on_problem_(
          "KV chunks of ended requests are not stored: a socket that holds a part of them could "
          "not write it, or was started without --cache-dir; its log says more");
  } else {
    failing_ = false;
  }
  if (moved.empty()) return true;
  moving.phase = Moving::Phase::kWritesTickets;
  MoveTickets(moving, KvJob::Kind::kStore, std::move(moved));
  return false;
}

void ChainKvTier::Advance() {
  TakeTickets();
  BeginStore();
  for (auto moving = moving_.begin(); moving != moving_.end();) {
    if (moving->phase == Moving::Phase::kOrders && Order(*moving) && AfterOrders(*moving)) {
      Finish(*moving);
      moving = moving_.erase(moving);
    } else {
      ++moving;
    }
  }
  ShowFiles();
}

void ChainKvTier::Finish(Moving& moving) { done_.push_back(std::move(moving.job)); }

std::optional<KvJob> ChainKvTier::Take() {
  if (jobs() == 0) return std::nullopt;
  if (done_.empty()) Advance();
  if (done_.empty()) return std::nullopt;
  std::optional<KvJob> job = std::move(done_.front());
  done_.pop_front();
  GivenBack(*job);
  return job;
}

std::optional<KvJob> ChainKvTier::Drop() {
  if (stores_.empty()) return std::nullopt;
  std::optional<KvJob> job = std::move(stores_.front());
  stores_.pop_front();
  GivenBack(*job);
  return job;
}

void ChainKvTier::Wait(int ms) {
  const int64_t begin_ns = NowNs();
  while (jobs() > 0) {
    Advance();
    if (done_.empty() && book_.taken() > 0) {
      channel_.Poll();
      Advance();
    }
    if (!done_.empty() || (ms >= 0 && SecondsSince(begin_ns) * 1000 >= ms)) return;
    if (tickets_->jobs() > 0) {
      tickets_->Wait(kLookMs);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }
}

void ChainKvTier::Abandon() {
  tickets_->Abandon();
  book_.Clear();
  stores_.clear();
  moving_.clear();
  done_.clear();
  Forgotten();
}

void ChainKvTier::ShowFiles() {
  const auto of_index = [](const std::atomic<uint64_t>& number) {
    return number.load(std::memory_order_relaxed);
  };
  status_.files.store(of_index(index_.status().files), std::memory_order_relaxed);
  status_.bytes.store(of_index(index_.status().bytes) + book_.bytes(), std::memory_order_relaxed);
}

}  // namespace larder::pipeline::kv_store
