#include "pipeline/engine/chain_kv_tier.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/fnv.h"

namespace larder::pipeline::inline engine {
namespace {

constexpr size_t kStoresAtOnce = 8;  // chunks; the other places are for loads
constexpr int kLookMs = 1;           // between frames without rows

// A chunk can be loaded only where it was stored: each socket has files of its own.
uint64_t TenantOn(AttentionId socket, uint64_t tenant) {
  return tenant ^ Fnv1a(fmt::format("socket {}", socket.value));
}

}  // namespace

ChainKvTier::ChainKvTier(TokenEngine& engine, KvFiles& index,
                         std::function<void(const std::string&)> on_problem)
    : engine_(engine),
      book_(*engine.kv_orders()),
      index_(index),
      on_problem_(std::move(on_problem)),
      tickets_(index, {.on_problem = on_problem_}) {
  LARDER_CHECK(index.options().chunk_bytes == sizeof(model::KvTicket) &&
               chunk_positions() == engine.kv().shape().chunk_positions);
  ShowFiles();
}

ChainKvTier::~ChainKvTier() { Abandon(); }

size_t ChainKvTier::Find(std::span<const int32_t> tokens, uint64_t tenant,
                         AttentionId socket) const {
  return index_.Find(tokens, TenantOn(socket, tenant));
}

void ChainKvTier::Start(KvJob job) {
  LARDER_CHECK(!job.chunks.empty() &&
               (job.first + job.chunks.size()) * chunk_positions() == job.tokens.size());
  ++jobs_;
  if (job.kind == KvJob::Kind::kStore) {
    storing_ += job.chunks.size();
    stores_.push_back(std::move(job));
  } else {
    Moving& moving = moving_.emplace_back(Moving{.job = std::move(job)});
    moving.tickets.resize(moving.job.chunks.size());
    moving.phase = Moving::Phase::kReadsTickets;
    MoveTickets(moving, KvJob::Kind::kLoad, moving.tickets.size());
  }
}

// Reads or writes the tickets of the job's first `chunks` chunks.
void ChainKvTier::MoveTickets(Moving& moving, KvJob::Kind kind, size_t chunks) {
  const KvJob& job = moving.job;
  const size_t tokens = (job.first + chunks) * chunk_positions();
  KvJob inner{.kind = kind,
              .slot = job.slot,
              .tokens = {job.tokens.begin(), job.tokens.begin() + static_cast<ptrdiff_t>(tokens)},
              .tenant = TenantOn(job.socket, job.tenant),
              .first = job.first};
  for (size_t i = 0; i < chunks; ++i) {
    inner.chunks.push_back(job.chunks[i]);
    inner.memory.push_back(
        {reinterpret_cast<uint8_t*>(&moving.tickets[i]), sizeof(model::KvTicket)});
  }
  tickets_.Start(std::move(inner));
}

// The job's chunks from `first` on can't be loaded: the tickets of those behind the first go, too,
// because they are stored again together.
void ChainKvTier::Forget(const KvJob& job, size_t first) {
  KvJob inner{.kind = KvJob::Kind::kForget,
              .tokens = job.tokens,
              .tenant = TenantOn(job.socket, job.tenant),
              .first = job.first + first};
  inner.chunks.assign(job.chunks.begin() + static_cast<ptrdiff_t>(first), job.chunks.end());
  inner.memory.resize(inner.chunks.size());
  tickets_.Start(std::move(inner));
}

void ChainKvTier::TakeTickets() {
  while (const std::optional<KvJob> moved = tickets_.Take()) {
    if (moved->kind == KvJob::Kind::kForget) continue;
    const bool load = moved->kind == KvJob::Kind::kLoad;
    const auto moving = std::ranges::find_if(moving_, [&](const Moving& of) {
      return of.phase == (load ? Moving::Phase::kReadsTickets : Moving::Phase::kWritesTickets) &&
             of.job.chunks.front() == moved->chunks.front();
    });
    LARDER_CHECK(moving != moving_.end());
    if (load && moved->done > 0) {
      moving->phase = Moving::Phase::kOrders;
      moving->end = moved->done;
      moving->moved.resize(moved->done);
      continue;
    }
    moving->job.done = moved->done;
    if (!load) status_.written.fetch_add(moved->done, std::memory_order_relaxed);
    Finish(*moving);
    moving_.erase(moving);
  }
}

// Begins the oldest store, if none has begun.
void ChainKvTier::BeginStore() {
  const auto stores = [](const Moving& of) { return of.job.kind == KvJob::Kind::kStore; };
  if (stores_.empty() || std::ranges::any_of(moving_, stores)) return;
  Moving& moving = moving_.emplace_back(Moving{.job = std::move(stores_.front())});
  stores_.pop_front();
  moving.end = moving.job.chunks.size();
  moving.moved.resize(moving.end);
  for (size_t i = 0; i < moving.end; ++i) {
    const auto number = [this] { return uint64_t{random_()} << 32 | random_(); };
    moving.tickets.push_back({number(), number()});
  }
}

bool ChainKvTier::Order(Moving& moving) {
  std::erase_if(moving.ordered, [&](const Moving::Ordered& one) {
    const KvOrderBook::State state = book_.state(one.place);
    if (state != KvOrderBook::State::kDone && state != KvOrderBook::State::kFailed) return false;
    moving.moved[one.chunk] = state == KvOrderBook::State::kDone;
    book_.Free(one.place);
    return true;
  });
  const bool load = moving.job.kind == KvJob::Kind::kLoad;
  while (moving.next < moving.end && (load || moving.ordered.size() < kStoresAtOnce)) {
    const auto place = book_.Add(load ? model::KvOrder::Kind::kLoad : model::KvOrder::Kind::kStore,
                                 moving.tickets[moving.next], moving.job.chunks[moving.next]);
    if (!place) break;
    moving.ordered.push_back({moving.next++, *place});
  }
  return moving.next == moving.end && moving.ordered.empty();
}

bool ChainKvTier::AfterOrders(Moving& moving) {
  KvJob& job = moving.job;
  // Only a beginning is of use.
  const auto begins =
      static_cast<size_t>(std::ranges::find(moving.moved, 0) - moving.moved.begin());
  if (job.kind == KvJob::Kind::kLoad) {
    job.done = begins;
    status_.read.fetch_add(begins, std::memory_order_relaxed);
    if (begins < moving.end) {
      status_.refused.fetch_add(1, std::memory_order_relaxed);
      Forget(job, begins);
    }
    return true;
  }
  if (begins < moving.end) {
    status_.failed.fetch_add(1, std::memory_order_relaxed);
    if (!std::exchange(failing_, true))
      on_problem_(
          "KV chunks of ended requests are not stored: a socket that holds a part of them could "
          "not write it, or was started without --cache-dir; its log says more");
  } else {
    failing_ = false;
  }
  if (begins == 0) return true;
  moving.phase = Moving::Phase::kWritesTickets;
  MoveTickets(moving, KvJob::Kind::kStore, begins);
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

void ChainKvTier::GivenBack(const KvJob& job) {
  --jobs_;
  if (job.kind == KvJob::Kind::kStore) storing_ -= job.chunks.size();
}

std::optional<KvJob> ChainKvTier::Take() {
  if (jobs_ == 0) return std::nullopt;
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
  while (jobs_ > 0) {
    Advance();
    if (done_.empty() && book_.taken() > 0) {
      engine_.Poll();
      Advance();
    }
    if (!done_.empty() || (ms >= 0 && SecondsSince(begin_ns) * 1000 >= ms)) return;
    if (tickets_.jobs() > 0) {
      tickets_.Wait(kLookMs);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(kLookMs));
    }
  }
}

void ChainKvTier::Abandon() {
  tickets_.Abandon();
  book_.Clear();
  stores_.clear();
  moving_.clear();
  done_.clear();
  jobs_ = storing_ = 0;
}

void ChainKvTier::ShowFiles() {
  const auto of_index = [](const std::atomic<uint64_t>& number) {
    return number.load(std::memory_order_relaxed);
  };
  status_.files.store(of_index(index_.status().files), std::memory_order_relaxed);
  status_.bytes.store(of_index(index_.status().bytes) + book_.bytes(), std::memory_order_relaxed);
}

}  // namespace larder::pipeline::engine
