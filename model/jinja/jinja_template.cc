#include "model/jinja/jinja_template.h"

#include <algorithm>

#include "base/error.h"
#include "model/jinja/functions.h"
#include "model/jinja_language/lexer.h"
#include "model/jinja_language/rendering.h"

namespace larder::model::inline jinja {
namespace {

using Json = nlohmann::ordered_json;

class Converter {
 public:
  Converter(Rendering& rendering, const JinjaVariables& variables)
      : rendering_(rendering), variables_(variables) {}

  Value Convert(const Json& json, std::string_view key, size_t depth) {
    Heap& heap = rendering_.heap();
    if (depth > kMaxValueDepth) rendering_.FailText("the variables are nested too deeply");
    switch (json.type()) {
      case Json::value_t::boolean:
        return Value::Bool(json.get<bool>());
      case Json::value_t::number_integer:
        return Value::Int(json.get<int64_t>());
      case Json::value_t::number_unsigned: {
        const auto number = json.get<uint64_t>();
        return number <= INT64_MAX ? Value::Int(static_cast<int64_t>(number))
                                   : Value::Whole(number);
      }
      case Json::value_t::number_float:
        return Value::Float(json.get<double>());
      case Json::value_t::string: {
        const auto& text = json.get_ref<const std::string&>();
        const bool trusted = variables_.is_trusted != nullptr && variables_.is_trusted(key, text);
        return heap.String(text, trusted);
      }
      case Json::value_t::array: {
        std::vector<Value> items;
        items.reserve(json.size());
        for (const Json& item : json) items.push_back(Convert(item, key, depth + 1));
        return heap.NewList(std::move(items));
      }
      case Json::value_t::object: {
        const Value dict = heap.NewDict();
        heap.Charge(json.size() * 2 * sizeof(Value));
        dict.dict->entries.reserve(json.size());
        // The keys of a JSON object differ, so that none must be looked for.
        for (const auto& [name, value] : json.items())
          dict.dict->entries.emplace_back(heap.String(name, false),
                                          Convert(value, name, depth + 1));
        return dict;
      }
      default:
        return Value::None();
    }
  }

 private:
  Rendering& rendering_;
  const JinjaVariables& variables_;
};

}  // namespace

struct JinjaTemplate::Parsed : ParsedTemplate {};

JinjaTemplate::JinjaTemplate(std::string source, std::string name, JinjaLimits limits)
    : source_(std::move(source)),
      name_(std::move(name)),
      limits_(limits),
      parsed_(std::make_unique<Parsed>()) {}
JinjaTemplate::~JinjaTemplate() = default;

std::shared_ptr<const JinjaTemplate> JinjaTemplate::Parse(std::string source, std::string name,
                                                          JinjaLimits limits) {
  if (source.size() > limits.source_bytes)
    throw Error("{}: the template has {} bytes, expected at most {}", name, source.size(),
                limits.source_bytes);
  std::shared_ptr<JinjaTemplate> out(new JinjaTemplate(std::move(source), std::move(name), limits));
  try {
    ParseTemplate(out->source_, Library(), *out->parsed_);
  } catch (const SyntaxError& error) {
    throw Error("{}: line {}: {}", out->name_, error.line, error.text);
  }
  return out;
}

std::vector<TextPiece> JinjaTemplate::Render(const JinjaVariables& variables) const {
  JinjaLimits limits = limits_;
  if (variables.most_steps > 0) limits.steps = std::min(limits.steps, variables.most_steps);
  Rendering rendering(*parsed_, limits, name_, variables.now_s);
  Converter converter(rendering, variables);
  Text text;
  try {
    for (const auto& [name, json] : variables.data) {
      // What the template never mentions need not be copied.
      if (Mentions(name)) rendering.SetVariable(name, converter.Convert(*json, name, 0));
    }
    for (const auto& [name, value] : variables.trusted)
      rendering.SetVariable(name, rendering.Bytes(value, true));
  } catch (const LimitReached& limit) {
    rendering.FailText(limit.text);
  }
  text = rendering.Run();
  std::vector<TextPiece> pieces;
  text.ForEachPart(0, text.size(), [&](std::string_view part, bool trusted) {
    pieces.push_back({std::string(part), trusted});
  });
  return pieces;
}

bool JinjaTemplate::Mentions(std::string_view name) const {
  return parsed_->FindName(name) != nullptr;
}

}  // namespace larder::model::jinja
