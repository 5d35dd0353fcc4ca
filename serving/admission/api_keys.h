// ApiKeys: the keys that the server accepts. Every request reads them; they are replaced when the
// key file changes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serving/admission/tenant_secret.h"

namespace larder::serving::inline admission {

// The clients of one key. They share cached prompts with each other and with no other tenant.
// Without keys all clients are one tenant. It is stored with what belongs to them, and tells
// nothing about the key: the first 64 bits of HMAC-SHA-256 of the key, under the server's secret.
enum class Tenant : uint64_t {};
inline constexpr Tenant kEverybody{0};
// As files have it: 16 hexadecimal digits. TenantOfText throws what std::stoull does.
std::string TenantText(Tenant);
Tenant TenantOfText(const std::string&);

class ApiKeys {
 public:
  // Shorter keys can be guessed, or are the remains of a variable that was not set.
  static constexpr size_t kLeastBytes = 8;

  explicit ApiKeys(const TenantSecret& secret = NewTenantSecret()) : secret_(secret) {}
  // To be called before there are keys.
  void SetSecret(const TenantSecret& secret) { secret_ = secret; }

  ApiKeys& operator=(std::vector<std::string> keys);
  bool empty() const;  // no key is needed
  // The tenant with this key, or nullopt. Takes as long for a wrong key as for a right one.
  std::optional<Tenant> Find(std::string_view key) const;
  // Whether the tenant's key is still accepted.
  bool Knows(Tenant) const;

 private:
  struct One {
    std::string key;
    Tenant tenant;
  };
  TenantSecret secret_;
  mutable std::mutex mutex_;
  std::vector<One> keys_;
};

// What is wrong with a key that the operator wants to use; empty: nothing. The text never contains
// the key.
std::string WhyNotKey(std::string_view key);

}  // namespace larder::serving::admission
