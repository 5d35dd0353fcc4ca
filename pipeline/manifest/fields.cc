#include "pipeline/manifest/fields.h"

#include <algorithm>
#include <sstream>

#include "base/control_char.h"
#include "base/error.h"
#include "pipeline/manifest/text.h"

namespace larder::pipeline::inline manifest {
namespace {

const char* TypeName(toml::node_type type) {
  switch (type) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a float";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

std::string Value(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("\"{}\"", Shown(text->get()));
  if (node.is_table() || node.is_array()) return TypeName(node.type());
  std::ostringstream out;
  out << std::boolalpha;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) out << value.get();
  });
  return Shown(out.str());
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

const toml::node* Fields::Find(std::string_view key) {
  asked_.emplace_back(key);
  return table_.get(key);
}

void Fields::Fail(std::string_view key, const std::string& problem) const {
  const toml::node* node = table_.get(key);
  if (node == nullptr) throw Error("{}: {}: {}", At(path_, line(), where_), key, problem);
  throw Error("{}: {} = {}: {}", At(path_, LineOf(*node), where_), key, Value(*node), problem);
}

void Fields::FailTable(const std::string& problem) const {
  throw Error("{}: {}", At(path_, line(), where_), problem);
}

std::optional<std::string> Fields::String(std::string_view key, const char* expected) {
  const toml::node* node = Find(key);
  if (node == nullptr) return {};
  const auto* text = node->as_string();
  if (text == nullptr)
    Fail(key, fmt::format("is {}; expected {} in quotes", TypeName(node->type()), expected));
  if (text->get().empty()) Fail(key, fmt::format("is empty; expected {}", expected));
  if (std::any_of(text->get().begin(), text->get().end(), IsControlChar))
    Fail(key, fmt::format("contains a control character; expected {}", expected));
  return text->get();
}

std::optional<bool> Fields::Bool(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return {};
  if (!node->is_boolean())
    Fail(key, fmt::format("is {}; expected true or false", TypeName(node->type())));
  return node->as_boolean()->get();
}

std::optional<int64_t> Fields::Integer(std::string_view key, int64_t low, int64_t high,
                                       const char* expected) {
  const toml::node* node = Find(key);
  if (node == nullptr) return {};
  const auto* number = node->as_integer();
  if (number == nullptr)
    Fail(key,
         fmt::format("is {}; expected {}, {} to {}", TypeName(node->type()), expected, low, high));
  if (number->get() < low || number->get() > high)
    Fail(key, fmt::format("out of range; expected {}, {} to {}", expected, low, high));
  return number->get();
}

std::optional<double> Fields::Fraction(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return {};
  const std::optional<double> value = node->is_number() ? node->value<double>() : std::nullopt;
  if (!value)
    Fail(key, fmt::format("is {}; expected a number above 0 and up to 1", TypeName(node->type())));
  if (!(*value > 0 && *value <= 1))
    Fail(key, "out of range; expected a number above 0 and up to 1");
  return value;
}

const toml::table* Fields::Table(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return nullptr;
  if (!node->is_table())
    Fail(key, fmt::format("is {}; expected a table, [{}]", TypeName(node->type()), key));
  return node->as_table();
}

const toml::array* Fields::Tables(std::string_view key) {
  const toml::node* node = Find(key);
  if (node == nullptr) return nullptr;
  const std::string header = fmt::format("[[{}{}]]", key == "socket" ? "server." : "", key);
  if (node->is_table())
    Fail(key, fmt::format("is one table; expected {}, with two brackets", header));
  if (!node->is_array())
    Fail(key, fmt::format("is {}; expected {}", TypeName(node->type()), header));
  const toml::array* array = node->as_array();
  for (const toml::node& element : *array) {
    if (!element.is_table())
      Fail(key, fmt::format("holds {}; expected {}", TypeName(element.type()), header));
  }
  return array->empty() ? nullptr : array;
}

void Fields::Done() const {
  for (const auto& [key, node] : table_) {
    if (std::find(asked_.begin(), asked_.end(), key.str()) != asked_.end()) continue;
    const std::string shown = Shown(key.str());
    const auto nearest =
        std::min_element(asked_.begin(), asked_.end(), [&shown](const auto& a, const auto& b) {
          return EditDistance(shown, a) < EditDistance(shown, b);
        });
    std::string known;
    for (const std::string& name : asked_) known += (known.empty() ? "" : ", ") + name;
    const bool close = EditDistance(shown, *nearest) <= 2;
    throw Error("{}: unknown key '{}'{}; expected {}", At(path_, LineOf(node), where_), shown,
                close ? fmt::format(" (did you mean '{}'?)", *nearest) : std::string(), known);
  }
}

}  // namespace larder::pipeline::manifest
