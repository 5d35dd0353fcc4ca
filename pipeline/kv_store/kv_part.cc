#include "pipeline/kv_store/kv_part.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace larder::pipeline::inline kv_store {
namespace {

// A ticket takes the place of tokens: of one chunk, with as many positions as it has numbers.
constexpr size_t kTicketNumbers = sizeof(KvTicket) / sizeof(int32_t);
constexpr size_t kFileOverhead = 256;  // more than a file has besides the part

}  // namespace

KvPart::KvPart(const KvPartOptions& options, const std::string& socket, uint64_t model,
               Chunks chunks, const Siblings& siblings)
    : options_(options), chunks_(std::move(chunks)) {
  if (options.folder.empty()) return;
  std::vector<size_t> class_bytes;
  uint64_t least = 0;
  for (size_t c = 0, chunk = 0; c < chunks_.classes; chunk += chunks_.pools[c++]) {
    class_bytes.push_back(chunks_.memory(static_cast<uint32_t>(chunk)).size());
    least += class_bytes.back() + kFileOverhead;
  }
  if (options.most_bytes < least) {
    throw Error(
        "{}/{}: its limit of {} bytes has no room for one part of {}; expected a larger "
        "--cache-disk, or cache_disk in the manifest",
        options.folder, socket, options.most_bytes, least);
  }
  const auto folder_of = [&](const std::string& name) { return options.folder + "/" + name; };
  std::vector<std::string> others;
  for (const std::string& sibling : siblings) others.push_back(folder_of(sibling));
  files_ = std::make_unique<KvFiles>(KvFilesOptions{.folder = folder_of(socket),
                                                    .others = std::move(others),
                                                    .most_bytes = options.most_bytes,
                                                    .model = model,
                                                    .chunk_positions = kTicketNumbers,
                                                    .chunk_bytes = std::move(class_bytes)});
  if (const uint64_t outdated = files_->status().outdated.load(); outdated > 0)
    options.on_problem(fmt::format("{}: {}", folder_of(socket), OutdatedText(outdated)));
  mover_ = std::make_unique<KvMover>(
      *files_, KvMover::Options{.cpus = options.cpus, .on_problem = options.on_problem});
  Collect();
}

void KvPart::Take(std::span<const KvOrder> orders) {
  Collect();
  for (const KvOrder& order : orders) {
    const uint64_t bit = uint64_t{1} << order.place;
    if ((report_.done & bit) == 0) continue;
    report_.done &= ~bit;
    report_.failed &= ~bit;
    if (mover_ == nullptr) {
      End(order.place, true);
      continue;
    }
    KvJob job{.kind = order.kind == KvOrder::Kind::kLoad    ? KvJob::Kind::kLoad
                      : order.kind == KvOrder::Kind::kStore ? KvJob::Kind::kStore
                                                            : KvJob::Kind::kTouch,
              .slot = SlotId(static_cast<int32_t>(order.place)),
              .tokens = std::vector<int32_t>(kTicketNumbers),
              .pieces = {{.of_class = static_cast<uint32_t>(ClassOf(order.chunk)),
                          .chunk = order.chunk,
                          .memory = chunks_.memory(order.chunk)}}};
    std::memcpy(job.tokens.data(), order.ticket.data(), sizeof order.ticket);
    mover_->Start(std::move(job));
  }
}

size_t KvPart::ClassOf(uint32_t chunk) const {
  size_t pool = 0;
  for (size_t end = chunks_.pools[0]; chunk >= end;) end += chunks_.pools[++pool];
  return pool % chunks_.classes;
}

void KvPart::End(uint32_t place, bool failed) {
  report_.done |= uint64_t{1} << place;
  report_.failed |= uint64_t{failed} << place;
}

void KvPart::Collect() {
  if (mover_ == nullptr) return;
  while (const std::optional<KvJob> job = mover_->Take())
    End(static_cast<uint32_t>(job->slot.value), job->done == 0);
  report_.files = files_->status().files.load(std::memory_order_relaxed);
  report_.bytes = files_->status().bytes.load(std::memory_order_relaxed);
}

void KvPart::Abandon() {
  if (mover_ != nullptr && !mover_->AbandonWithin(options_.stuck_ms)) {
    std::fprintf(stderr,
                 "larder: error: %s: a file has not been read or written for %.0f s, and the next "
                 "chain needs its memory; stopping\n",
                 files_->options().folder.c_str(), options_.stuck_ms * 1e-3);
    ::_exit(75);  // as after the loss of a peer: a supervisor starts it again
  }
  report_.done = ~uint64_t{0};
  report_.failed = 0;
}

}  // namespace larder::pipeline::kv_store
