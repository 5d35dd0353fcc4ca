// PreparedEvent: the JSON of events that differ only in a text. A JSON tree for each token would
// cost the I/O thread more than everything else that it does for the token outside the kernel. No
// state; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace larder::serving::inline reply {

class PreparedEvent {
 public:
  // Stands for the text in the example. No name of a model or id has control characters.
  static constexpr const char* kText = "\x01text\x01";

  PreparedEvent() = default;
  explicit PreparedEvent(const nlohmann::json& example);
  std::string operator()(std::string_view text) const;

 private:
  std::vector<std::string> parts_;  // the text goes between them
};

}  // namespace larder::serving::reply
