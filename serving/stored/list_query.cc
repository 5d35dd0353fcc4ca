#include "serving/stored/list_query.h"

#include <algorithm>
#include <charconv>

#include "serving/fields/json_fields.h"

namespace larder::serving::inline stored {

std::string QueryOf(const std::string& target, std::string_view name) {
  for (size_t at = target.find('?'); at != std::string::npos; at = target.find('&', at + 1)) {
    const std::string_view rest = std::string_view(target).substr(at + 1);
    const std::string_view pair = rest.substr(0, rest.find('&'));
    const size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name)
      return std::string(pair.substr(equals + 1));
  }
  return "";
}

size_t LimitOf(const std::string& target, size_t usual, size_t most) {
  const std::string text = QueryOf(target, "limit");
  if (text.empty()) return usual;
  size_t limit = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (failed != std::errc() || end != text.data() + text.size() || limit == 0)
    throw Refused(400, "limit is {}: expected 1 to {}", Excerpt(text), most).On("limit");
  return std::min(limit, most);
}

bool WantsNewestFirst(const std::string& target) {
  const std::string order = QueryOf(target, "order");
  if (!order.empty() && order != "asc" && order != "desc")
    throw Refused(400, "order is {}: expected asc or desc", Excerpt(order)).On("order");
  return order != "asc";
}

}  // namespace larder::serving::stored
