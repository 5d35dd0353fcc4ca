#include "serving/history/response_store.h"

#include <chrono>
#include <utility>
#include <vector>

namespace larder::serving::inline history {
namespace {

int64_t UnixNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string StoredResponse::Text() const {
  std::string text = *body;
  text.pop_back();  // "}"
  return text.append(R"(,"output":)").append(turn->output).append("}");
}

ResponseStore::~ResponseStore() { Close(); }

void ResponseStore::Open(ResponseFilesOptions options) {
  const auto log = options.log;
  const std::string folder = options.folder;
  auto files = std::make_unique<ResponseFiles>(std::move(options));
  std::vector<KeptTurn> left = files->Load();
  books_->SetFiles(files.get());
  const std::lock_guard lock(mutex_);
  files_ = std::move(files);
  // A turn's file is older than those of the turns behind it, unless the clock was set back: then
  // it takes another round.
  std::map<std::string, std::shared_ptr<const StoredTurn>, std::less<>> there;
  for (size_t before = 0; before != left.size();) {
    before = left.size();
    std::vector<KeptTurn> later;
    for (KeptTurn& one : left) {
      const auto previous = there.find(one.previous);
      if (previous == there.end() && !one.previous.empty()) {
        later.push_back(std::move(one));
        continue;
      }
      auto turn = std::make_shared<const StoredTurn>(
          books_, one.id, one.tenant, one.previous.empty() ? nullptr : previous->second,
          std::move(one.input), std::move(one.output), one.created_ns);
      there[one.id] = turn;
      if (!one.body.empty())
        Take({std::move(turn), std::make_shared<const std::string>(std::move(one.body))});
    }
    left = std::move(later);
  }
  for (const KeptTurn& one : left)
    log(fmt::format("{}: {} continues {}, which is missing; it is ignored, and its file stays",
                    folder, one.id, one.previous));
}

void ResponseStore::Close() {
  books_->SetFiles(nullptr);
  ResponseFiles* files = nullptr;
  {
    const std::lock_guard lock(mutex_);
    files = files_.get();
  }
  if (files != nullptr) files->Close();
}

std::list<ResponseStore::Entry>::iterator* ResponseStore::FindEntry(std::string_view id,
                                                                    Tenant tenant) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->response.turn->tenant != tenant) return nullptr;
  return &found->second;
}

std::optional<StoredResponse> ResponseStore::Find(std::string_view id, Tenant tenant) {
  const std::lock_guard lock(mutex_);
  const auto* found = FindEntry(id, tenant);
  if (found == nullptr) return std::nullopt;
  std::list<Entry>& entries = owners_.at(tenant).entries;
  entries.splice(entries.end(), entries, *found);
  (*found)->used = ++uses_;
  return (*found)->response;
}

bool ResponseStore::Has(std::string_view id) const {
  const std::lock_guard lock(mutex_);
  return by_id_.contains(id);
}

bool ResponseStore::Fits(const StoredTurn* previous, size_t texts) const {
  return (previous == nullptr ? 0 : previous->all_bytes) + StoredTurn::BytesOf(texts) <=
         quota_.most_bytes();
}

void ResponseStore::Add(std::string id, Tenant tenant, std::shared_ptr<const StoredTurn> previous,
                        std::string input, std::string output, std::string body) {
  if (!Fits(previous.get(), input.size() + output.size() + body.size())) return;
  StoredResponse response{
      std::make_shared<const StoredTurn>(books_, std::move(id), tenant, std::move(previous),
                                         std::move(input), std::move(output), UnixNs()),
      std::make_shared<const std::string>(std::move(body))};
  const std::lock_guard lock(mutex_);
  if (by_id_.contains(response.turn->id)) return;
  if (files_ != nullptr) files_->Write(response.turn, response.body);
  Take(std::move(response));
}

bool ResponseStore::Remove(std::string_view id, Tenant tenant) {
  const std::lock_guard lock(mutex_);
  const auto* found = FindEntry(id, tenant);
  if (found == nullptr) return false;
  Erase(tenant, *found);
  return true;
}

void ResponseStore::Take(StoredResponse response) {
  const Tenant tenant = response.turn->tenant;
  Owner& owner = owners_[tenant];
  owner.body_bytes += response.body->size();
  body_bytes_ += response.body->size();
  const std::string id = response.turn->id;
  owner.entries.push_back({std::move(response), ++uses_});
  by_id_[id] = std::prev(owner.entries.end());
  MakeRoom(tenant);
}

// All but the newest of the tenant may go.
void ResponseStore::MakeRoom(Tenant tenant) {
  Owner& owner = owners_.at(tenant);
  while (owner.entries.size() > 1 &&
         (owner.entries.size() > quota_.tenant_responses ||
          books_->bytes(tenant) + owner.body_bytes > quota_.tenant_bytes))
    Erase(tenant, owner.entries.begin());
  while (by_id_.size() > 1 &&
         (by_id_.size() > quota_.responses || books_->bytes() + body_bytes_ > quota_.bytes)) {
    auto oldest = owners_.begin();  // tenants are few
    for (auto at = owners_.begin(); at != owners_.end(); ++at) {
      if (at->second.entries.front().used < oldest->second.entries.front().used) oldest = at;
    }
    Erase(oldest->first, oldest->second.entries.begin());
  }
}

void ResponseStore::Erase(Tenant tenant, std::list<Entry>::iterator at) {
  Owner& owner = owners_.at(tenant);
  owner.body_bytes -= at->response.body->size();
  body_bytes_ -= at->response.body->size();
  const std::shared_ptr<const StoredTurn> turn = at->response.turn;
  by_id_.erase(turn->id);
  owner.entries.erase(at);
  if (owner.entries.empty()) owners_.erase(tenant);
  // Others go on from it. If they don't any more, its destructor removes the file.
  if (files_ != nullptr && turn.use_count() > 1) files_->Hide(turn, turn->id);
}

size_t ResponseStore::size() const {
  const std::lock_guard lock(mutex_);
  return by_id_.size();
}

size_t ResponseStore::bytes() const {
  const std::lock_guard lock(mutex_);
  return books_->bytes() + body_bytes_;
}

}  // namespace larder::serving::history
