// ApiKeys: who is welcome. Read by every request, exchanged when the key file changes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace larder::serving {

// Who shares what was kept for him, and with nobody else: the clients of one key. All are one where there are
// no keys.
using Tenant = uint64_t;
inline constexpr Tenant kEverybody = 0;

class ApiKeys {
 public:
  // Shorter ones are guessed, or are a variable that was not set.
  static constexpr size_t kLeastBytes = 8;

  ApiKeys& operator=(std::vector<std::string> keys);
  bool empty() const;  // everybody is welcome
  // Whose key it is; nothing: nobody's. Takes as long for a wrong key as for a right one.
  std::optional<Tenant> Find(std::string_view key) const;
  // Whether his key still counts.
  bool Knows(Tenant) const;

 private:
  struct One {
    std::string key;
    Tenant tenant;
  };
  mutable std::mutex mutex_;
  std::vector<One> keys_;
};

// What is wrong with a key that somebody wants to give out; empty: nothing. Never shows the key.
std::string WhyNotKey(std::string_view key);

}  // namespace larder::serving
