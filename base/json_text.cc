#include "base/json_text.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/work.h"

namespace larder {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string WithoutClass(const std::string& what) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  const size_t end = what.find("] ");
  return what.substr(end == std::string::npos ? 0 : end + 2, 200);
}

using Fields = ordered_json::object_t::Container;  // whose [] takes an index

// The indices of an ordered object's fields by name, equal names in their order.
std::vector<uint32_t> ByName(const Fields& fields) {
  std::vector<uint32_t> order(fields.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const int names = fields[a].first.compare(fields[b].first);
    return names != 0 ? names < 0 : a < b;
  });
  return order;
}

// Fields were added without a look at the others: of equal names the last value goes into the first
// one's place.
void MergeEqualNames(ordered_json& object) {
  Fields& fields = object.get_ref<ordered_json::object_t&>();
  const std::vector<uint32_t> order = ByName(fields);
  std::vector<bool> dropped(fields.size());
  bool any = false;
  for (size_t i = 1, first = 0; i < order.size(); ++i) {
    if (fields[order[i]].first != fields[order[first]].first) {
      first = i;
      continue;
    }
    fields[order[first]].second = std::move(fields[order[i]].second);
    dropped[order[i]] = any = true;
  }
  if (!any) return;
  ordered_json kept = ordered_json::object();
  Fields& to = kept.get_ref<ordered_json::object_t&>();
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!dropped[i]) to.emplace_back(fields[i].first, std::move(fields[i].second));
  }
  object = std::move(kept);
}

// Builds the tree from nlohmann's events.
template <typename Json>
class TreeBuilder : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return Add(value); }
  bool string(string_t& value) override {
    SpendWork(value.size() / 32);
    return Add(std::move(value));
  }
  bool binary(binary_t& /*value*/) override { return false; }  // not in a text
  bool start_object(size_t /*size*/) override { return Open(Json::object()); }
  bool start_array(size_t /*size*/) override { return Open(Json::array()); }
  bool key(string_t& name) override {
    SpendWork(StepsOfText(name.size()));
    if (++open_.back().fields > limits_.fields)
      throw JsonError("has an object of more than {} fields", limits_.fields);
    name_ = std::move(name);
    return true;
  }
  bool end_object() override {
    if constexpr (std::is_same_v<Json, ordered_json>) {
      if (open_.back().fields > 1) MergeEqualNames(*open_.back().value);
    }
    open_.pop_back();
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    throw JsonError("is not JSON: {}", WithoutClass(error.what()));
  }

  Json Take() { return std::move(root_); }

 private:
  struct Container {
    Json* value;
    size_t fields = 0;  // named so far
  };

  bool Add(Json value) {
    Put(std::move(value));
    return true;
  }
  Json* Put(Json value) {
    SpendWork(1);
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back().value;
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    if constexpr (std::is_same_v<Json, ordered_json>) {
      Fields& fields = parent.template get_ref<ordered_json::object_t&>();
      return &fields.emplace_back(std::move(name_), std::move(value)).second;
    } else {
      Json& place = parent[name_];
      place = std::move(value);
      return &place;
    }
  }
  bool Open(Json empty) {
    if (open_.size() >= limits_.depth)
      throw JsonError("is nested more than {} deep", limits_.depth);
    open_.push_back({Put(std::move(empty))});
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Container> open_;
  std::string name_;  // the name of the next value
};

// Reads the outermost object's fields until it finds the one.
struct FieldFinder : nlohmann::json_sax<json> {
  explicit FieldFinder(std::string_view of) : field(of) {}
  bool Value() {
    at_field = false;
    return true;
  }
  bool Deeper(int by) {
    depth += by;
    return Value();
  }
  bool null() override { return Value(); }
  bool boolean(bool) override { return Value(); }
  bool number_integer(number_integer_t) override { return Value(); }
  bool number_unsigned(number_unsigned_t) override { return Value(); }
  bool number_float(number_float_t, const string_t&) override { return Value(); }
  bool string(string_t& value) override {
    if (at_field) found = value;
    Value();
    return !found;
  }
  bool binary(binary_t&) override { return Value(); }
  bool start_object(size_t) override { return Deeper(1); }
  bool end_object() override { return Deeper(-1); }
  bool start_array(size_t) override { return Deeper(1); }
  bool end_array() override { return Deeper(-1); }
  bool key(string_t& name) override {
    at_field = depth == 1 && name == field;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

  const std::string_view field;
  int depth = 0;
  bool at_field = false;
  std::optional<std::string> found;
};

// 0xd800 to 0xdfff: the escaped half of a pair at that place; 0: there is none.
uint32_t HalfAt(std::string_view text, size_t at) {
  if (text.size() - at < 6 || text[at] != '\\' || text[at + 1] != 'u') return 0;
  uint32_t value = 0;
  const char* digits = text.data() + at + 2;
  if (std::from_chars(digits, digits + 4, value, 16).ptr != digits + 4) return 0;
  return value >= 0xd800 && value < 0xe000 ? value : 0;
}

// The text with U+FFFD for each half that stands alone; empty: there is none.
std::string WithWholePairs(std::string_view text) {
  std::string whole;
  size_t copied = 0;
  for (size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at)) {
    const uint32_t half = HalfAt(text, at);
    if (half == 0) {
      at = std::min(at + 2, text.size());
      continue;
    }
    const uint32_t other = half < 0xdc00 && text.size() > at + 6 ? HalfAt(text, at + 6) : 0;
    if (other >= 0xdc00) {
      at += 12;
      continue;
    }
    whole.append(text, copied, at - copied).append("\\ufffd");
    copied = at += 6;
  }
  if (copied > 0) whole.append(text, copied);
  return whole;
}

}  // namespace

template <typename Json>
Json ParseJsonText(std::string_view text, const JsonLimits& limits) {
  const std::string whole = WithWholePairs(text);
  if (!whole.empty()) text = whole;
  TreeBuilder<Json> builder(limits);
  try {
    Json::sax_parse(text, &builder);
  } catch (const json::exception& error) {  // a number that no double has
    throw JsonError("is not JSON: {}", WithoutClass(error.what()));
  }
  return builder.Take();
}

template <typename Json>
std::optional<Json> TryParseJsonText(std::string_view text, const JsonLimits& limits) {
  try {
    return ParseJsonText<Json>(text, limits);
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

template json ParseJsonText<json>(std::string_view, const JsonLimits&);
template ordered_json ParseJsonText<ordered_json>(std::string_view, const JsonLimits&);
template std::optional<json> TryParseJsonText<json>(std::string_view, const JsonLimits&);
template std::optional<ordered_json> TryParseJsonText<ordered_json>(std::string_view,
                                                                    const JsonLimits&);

void RethrowOfFile(const std::string& path, std::string_view wrong) {
  try {
    throw;
  } catch (const JsonError& error) {
    throw Error("{}: {}: it {}", path, wrong, error.what());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // a field is missing or of another type
    throw Error("{}: {}: {}", path, wrong, WithoutClass(error.what()));
  }
}

std::optional<std::string> FindTextField(std::string_view beginning, std::string_view field) {
  FieldFinder finder(field);
  json::sax_parse(beginning, &finder);
  return finder.found;
}

}  // namespace larder
