#include "serving/history/turn.h"

#include <utility>

#include "serving/history/response_files.h"

namespace larder::serving::inline history {

size_t TurnBooks::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

size_t TurnBooks::bytes(Tenant tenant) const {
  const std::lock_guard lock(mutex_);
  const auto found = of_.find(tenant);
  return found == of_.end() ? 0 : found->second;
}

void TurnBooks::Add(Tenant tenant, size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ += bytes;
  of_[tenant] += bytes;
}

void TurnBooks::Left(const std::string& id, Tenant tenant, size_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_ -= bytes;
  if ((of_[tenant] -= bytes) == 0) of_.erase(tenant);
  if (files_ != nullptr) files_->Remove(id);
}

void TurnBooks::SetFiles(ResponseFiles* files) {
  const std::lock_guard lock(mutex_);
  files_ = files;
}

StoredTurn::StoredTurn(std::shared_ptr<TurnBooks> of, std::string name, Tenant whose,
                       std::shared_ptr<const StoredTurn> before, std::string asked,
                       std::string answered, int64_t now_ns)
    : books(std::move(of)),
      id(std::move(name)),
      tenant(whose),
      previous(std::move(before)),
      input(std::move(asked)),
      output(std::move(answered)),
      created_ns(now_ns),
      depth(previous == nullptr ? 1 : previous->depth + 1),
      all_bytes(bytes() + (previous == nullptr ? 0 : previous->all_bytes)) {
  books->Add(tenant, bytes());
}

StoredTurn::~StoredTurn() { books->Left(id, tenant, bytes()); }

}  // namespace larder::serving::history
