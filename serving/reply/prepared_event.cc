#include "serving/reply/prepared_event.h"

#include "base/check.h"
#include "serving/reply/error_reply.h"

namespace larder::serving::inline reply {

PreparedEvent::PreparedEvent(const nlohmann::json& example) {
  const std::string mark = Dump(std::string_view(kText));
  const std::string whole = Dump(example);
  size_t at = 0;
  for (size_t found = whole.find(mark); found != std::string::npos; found = whole.find(mark, at)) {
    parts_.push_back(whole.substr(at, found - at));
    at = found + mark.size();
  }
  parts_.push_back(whole.substr(at));
  LARDER_CHECK(parts_.size() > 1, "an event without a text");
}

std::string PreparedEvent::operator()(std::string_view text) const {
  const std::string json = Dump(text);
  std::string event = parts_[0];
  for (size_t i = 1; i < parts_.size(); ++i) event.append(json).append(parts_[i]);
  return event;
}

}  // namespace larder::serving::reply
