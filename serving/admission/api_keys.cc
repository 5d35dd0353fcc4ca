#include "serving/admission/api_keys.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <array>
#include <utility>

namespace larder::serving::inline admission {

namespace {

// Derived from the key, not from its place: a file that is read again may have another order.
Tenant TenantOf(const std::string& key, const TenantSecret& secret) {
  static_assert(sizeof secret == crypto_auth_hmacsha256_KEYBYTES);
  std::array<unsigned char, crypto_auth_hmacsha256_BYTES> hash;
  crypto_auth_hmacsha256(hash.data(), reinterpret_cast<const unsigned char*>(key.data()),
                         key.size(), secret.data());
  uint64_t number = 0;
  for (size_t i = sizeof number; i-- > 0;) number = number << 8 | hash[i];
  return Tenant{std::max<uint64_t>(number, 1)};  // never kEverybody
}

}  // namespace

std::string TenantText(Tenant tenant) {
  return fmt::format("{:016x}", static_cast<uint64_t>(tenant));
}

Tenant TenantOfText(const std::string& text) { return Tenant{std::stoull(text, nullptr, 16)}; }

ApiKeys& ApiKeys::operator=(std::vector<std::string> keys) {
  std::vector<One> known;
  for (std::string& key : keys) {
    const Tenant tenant = TenantOf(key, secret_);
    known.push_back({std::move(key), tenant});
  }
  const std::lock_guard lock(mutex_);
  keys_ = std::move(known);
  return *this;
}

bool ApiKeys::empty() const {
  const std::lock_guard lock(mutex_);
  return keys_.empty();
}

std::optional<Tenant> ApiKeys::Find(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  if (keys_.empty()) return kEverybody;
  std::optional<Tenant> found;
  for (const auto& [known, tenant] : keys_) {
    unsigned difference = known.size() != key.size();
    for (size_t i = 0; i < known.size(); ++i)
      difference |= static_cast<unsigned char>(known[i] ^ (i < key.size() ? key[i] : 0));
    if (difference == 0) found = tenant;
  }
  return found;
}

bool ApiKeys::Knows(Tenant tenant) const {
  const std::lock_guard lock(mutex_);
  if (keys_.empty()) return true;
  return std::any_of(keys_.begin(), keys_.end(),
                     [&](const One& one) { return one.tenant == tenant; });
}

std::string WhyNotKey(std::string_view key) {
  if (key.empty())
    return fmt::format("the key is empty: expected at least {} bytes", ApiKeys::kLeastBytes);
  if (key.size() < ApiKeys::kLeastBytes)
    return fmt::format(
        "the key has {} bytes: expected at least {}, such as `openssl rand -hex 16` gives",
        key.size(), ApiKeys::kLeastBytes);
  return "";
}

}  // namespace larder::serving::admission
