// Test support: what tests of links ask and compare.
#pragma once

#include <memory>
#include <string>

#include "base/error_testing.h"
#include "rdma/proof/link_key.h"

namespace larder::rdma::inline link {

inline constexpr int kLongMs = 20000;  // limit for a hang, not a timing

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::shared_ptr<const LinkKey> Key(uint8_t number) {
  const uint8_t bytes[LinkKey::kBytes] = {number};
  return std::make_shared<const LinkKey>(bytes);
}

}  // namespace larder::rdma::link
