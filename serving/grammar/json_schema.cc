// One class in over 600 lines: every keyword's reader reads the schemas in it, and makes rules of
// one Syntax.
#include "serving/grammar/json_schema.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json_text.h"
#include "base/work.h"
#include "serving/grammar/json_number.h"
#include "serving/grammar/schema_merge.h"
#include "serving/grammar/schema_strings.h"
#include "serving/grammar/syntax_facts.h"

namespace larder::serving::inline grammar {
namespace {

constexpr size_t kMostSchemaBytes = 1u << 20;
constexpr size_t kMostSchemaDepth = 64;
constexpr size_t kMostValues = 50'000;  // schemas read, those of merged ones included
constexpr uint32_t kMostWhiteSpace = 20;
constexpr size_t kMostPathBytes = 200;  // that errors show; the last key's come on top

// What would narrow the valid texts.
constexpr const char* kUnsupported[] = {"not",
                                        "if",
                                        "then",
                                        "else",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "dependencies",
                                        "propertyNames",
                                        "unevaluatedProperties",
                                        "unevaluatedItems",
                                        "$dynamicRef",
                                        "$recursiveRef"};

class SchemaReader {
 public:
  SchemaReader(Syntax& syntax, const Json& root) : syntax_(syntax), root_(root) {}

  ExprId Run() { return Value(root_, "", 0); }

  // Throws Error with the innermost schema that no text matches, if that is why none matches the
  // whole.
  void WantText() const {
    const std::vector<bool> productive = FindProductive(syntax_);
    const auto never = [&](const Read& read) { return !productive[read.expr]; };
    if (!never(reads_[0])) return;
    size_t at = 0;
    for (size_t i = 1; i < reads_.size(); ++i) {
      if (reads_[i].parent == at && never(reads_[i])) at = i;
    }
    FailAt(reads_[at].path, "it matches no text");
  }

 private:
  ExprId Text(const char* text) { return syntax_.Text(text); }
  ExprId Named(const char* name, ExprId body) {
    const RuleId rule = syntax_.AddRule(name);
    syntax_.Define(rule, body);
    return syntax_.Rule(rule);
  }
  // Made once, where first used.
  template <typename Make>
  ExprId Shared(RuleId& rule, const char* name, Make make) {
    if (rule == kNone) {
      rule = syntax_.AddRule(name);
      syntax_.Define(rule, make());
    }
    return syntax_.Rule(rule);
  }

  // Nothing, a space, or a new line with its indent: no model can go on with it for ever.
  ExprId Space() {
    return Shared(space_, "space", [&] {
      const ExprId indent =
          syntax_.Repeat(syntax_.Class({{'\t', '\t'}, {' ', ' '}}), 0, kMostWhiteSpace);
      return syntax_.Optional(syntax_.Choice({Text(" "), syntax_.Sequence({Text("\n"), indent})}));
    });
  }
  ExprId Colon() { return syntax_.Sequence({Text(":"), syntax_.Optional(Text(" "))}); }
  ExprId Comma() { return syntax_.Sequence({Text(","), Space()}); }
  ExprId AnyString() {
    return Shared(string_, "string", [&] { return AddString(syntax_, Json::object(), ""); });
  }
  ExprId AnyNumber() {
    return Shared(number_, "number", [&] { return AddNumber(syntax_, {}); });
  }
  ExprId AnyInteger() {
    return Shared(integer_, "integer", [&] { return AddInteger(syntax_, {}); });
  }
  ExprId AnyValue() {
    return Shared(value_, "value", [&] {
      return syntax_.Choice({AnyObject(), AnyArray(), AnyString(), AnyNumber(), Text("true"),
                             Text("false"), Text("null")});
    });
  }
  ExprId AnyObject() {
    return Shared(object_, "object", [&] {
      const ExprId member = Named("member", syntax_.Sequence({AnyString(), Colon(), AnyValue()}));
      return Braces("{", ListOf(member, 0, kUnbounded), "}");
    });
  }
  ExprId AnyArray() {
    return Shared(array_, "array",
                  [&] { return Braces("[", ListOf(AnyValue(), 0, kUnbounded), "]"); });
  }
  ExprId Braces(const char* open, ExprId inside, const char* close) {
    return syntax_.Sequence({Text(open), Space(), inside, Text(close)});
  }
  // With white space behind it, if there is anything.
  ExprId ListOf(ExprId item, uint32_t least, uint32_t most) {
    if (most == 0) return least == 0 ? syntax_.Empty() : syntax_.Never();
    const ExprId more = syntax_.Repeat(syntax_.Sequence({Comma(), item}), least > 0 ? least - 1 : 0,
                                       most == kUnbounded ? kUnbounded : most - 1);
    const ExprId list = syntax_.Sequence({item, more, Space()});
    return least == 0 ? syntax_.Optional(list) : list;
  }

  // --- references ---

  const Json& Resolve(const std::string& ref, const std::string& path) const {
    if (ref == "#") return root_;
    if (ref.rfind("#/", 0) != 0)
      FailAt(path,
             fmt::format("$ref: '{}' is not supported: expected # or #/..., a place in this schema",
                         ref.substr(0, 80)));
    const Json* at = &root_;
    for (size_t begin = 2; begin <= ref.size();) {
      SpendWork(1 + (at->is_object() ? at->size() / 2 : 0));
      const size_t end = std::min(ref.find('/', begin), ref.size());
      const std::string key = Unescaped(ref.substr(begin, end - begin));
      const bool is_index = at->is_array() && !key.empty() && key.size() < 7 &&
                            key.find_first_not_of("0123456789") == std::string::npos;
      if (at->is_object() && at->contains(key)) {
        at = &(*at)[key];
      } else if (is_index && std::stoul(key) < at->size()) {
        at = &(*at)[std::stoul(key)];
      } else {
        FailAt(path, fmt::format("$ref: '{}' is nowhere in the schema", ref.substr(0, 80)));
      }
      begin = end + 1;
    }
    return *at;
  }
  // ~1 is /, ~0 is ~; %XX as in a URI.
  static std::string Unescaped(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '~' && i + 1 < text.size() && (text[i + 1] == '0' || text[i + 1] == '1')) {
        out += text[++i] == '0' ? '~' : '/';
      } else if (text[i] == '%' && i + 2 < text.size() &&
                 std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
                 std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
        out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        out += text[i];
      }
    }
    return out;
  }
  static std::string RefOf(const Json& ref, const std::string& path) {
    if (!ref.is_string()) FailAt(path, "$ref: expected a string");
    SpendWork(16 * StepsOfText(ref.get_ref<const std::string&>().size()));
    return ref.get<std::string>();
  }

  // The schema with its own reference replaced by what that names.
  Json Dereferenced(const Json& given, const std::string& path) const {
    Json schema = Copied(given);
    for (size_t i = 0; schema.is_object() && schema.contains("$ref"); ++i) {
      if (i == kMostSchemaDepth) FailAt(path, "$ref leads to itself");
      const Json& target = Resolve(RefOf(schema["$ref"], path), path);
      schema = MergeSchemas(target, Copied(schema, {"$ref"}), path);
    }
    return schema;
  }

  // --- one schema ---

  ExprId Value(const Json& schema, const std::string& path, size_t depth) {
    const size_t at = reads_.size();
    HoldWork(sizeof(Read) + path.size());
    reads_.push_back({path, syntax_.Never(), parent_});
    const size_t parent = std::exchange(parent_, at);
    const ExprId expr = ReadValue(schema, path, depth);
    parent_ = parent;
    reads_[at].expr = expr;
    return expr;
  }
  // One without which its parent has texts too.
  ExprId OptionalValue(const Json& schema, const std::string& path, size_t depth) {
    const size_t before = reads_.size();
    const ExprId expr = Value(schema, path, depth);
    reads_.resize(before);
    return expr;
  }

  ExprId ReadValue(const Json& schema, const std::string& path, size_t depth) {
    if (depth > kMostSchemaDepth)
      FailAt(path, fmt::format("nested more than {} deep", kMostSchemaDepth));
    if (++values_ > kMostValues)
      FailAt(path, fmt::format("the schema has more than {} parts", kMostValues));
    if (schema.is_boolean()) return schema.get<bool>() ? AnyValue() : syntax_.Never();
    if (!schema.is_object()) FailAt(path, "expected an object, true or false");
    SpendWork(10 + 10 * schema.size());  // about 40 keywords are looked up among its own
    Check(schema, path);
    if (const auto ref = schema.find("$ref"); ref != schema.end())
      return Reference(schema, *ref, path, depth);
    if (const auto all = schema.find("allOf"); all != schema.end())
      return AllOf(schema, *all, path, depth);
    for (const char* keyword : {"anyOf", "oneOf"}) {
      if (const auto any = schema.find(keyword); any != schema.end())
        return AnyOf(schema, keyword, *any, path, depth);
    }
    if (schema.contains("const")) return Constants(schema, Json::array({schema["const"]}), path);
    if (const auto list = schema.find("enum"); list != schema.end()) {
      if (!list->is_array()) FailAt(path, "enum: expected an array");
      return Constants(schema, *list, path);
    }
    std::vector<ExprId> ways;
    for (const std::string& type : TypesOf(schema, path))
      ways.push_back(OfType(type, schema, path, depth));
    return ways.size() == 1 ? ways[0] : Named("types", syntax_.Choice(ways));
  }

  static void Check(const Json& schema, const std::string& path) {
    for (const char* keyword : kUnsupported) {
      if (schema.contains(keyword)) FailAt(path, fmt::format("{} is not supported", keyword));
    }
    if (const auto unique = schema.find("uniqueItems"); unique != schema.end() && *unique != false)
      FailAt(path, "uniqueItems is not supported");
    if (const auto multiple = schema.find("multipleOf"); multiple != schema.end()) {
      if (*multiple != 1 || schema.value("type", Json()) != "integer")
        FailAt(path, "multipleOf is not supported");
    }
  }

  // A place within `path`; only its beginning, where it is long.
  static std::string Under(const std::string& path, const std::string& key) {
    if (path.size() >= kMostPathBytes) return path;
    return path + "/" + key.substr(0, kMostPathBytes);
  }

  ExprId Reference(const Json& schema, const Json& ref, const std::string& path, size_t depth) {
    const bool alone = OnlyAnnotations(schema, "$ref");
    if (!alone) return Value(Dereferenced(schema, path), path, depth + 1);
    const std::string name = RefOf(ref, path);
    const auto [place, is_new] = references_.try_emplace(name);
    Referred& referred = place->second;
    if (!is_new) {
      if (referred.braces == braces_) FailAt(path, "$ref leads to itself");
      return syntax_.Rule(referred.rule);
    }
    referred = {syntax_.AddRule(name), braces_};
    const Json& target = Resolve(name, path);
    syntax_.Define(referred.rule, Value(target, name.substr(1, kMostPathBytes), depth + 1));
    referred.braces = kClosed;
    return syntax_.Rule(referred.rule);
  }

  static bool OnlyAnnotations(const Json& schema, std::string_view besides) {
    const auto& fields = schema.get_ref<const Json::object_t&>();
    return std::all_of(fields.begin(), fields.end(), [&](const auto& field) {
      return field.first == besides || IsAnnotation(field.first);
    });
  }

  ExprId AllOf(const Json& schema, const Json& all, const std::string& path, size_t depth) {
    if (!all.is_array() || all.empty()) FailAt(path, "allOf: expected an array of schemas");
    Json merged = Copied(schema, {"allOf"});
    for (const Json& part : all) {
      if (part.is_object()) Check(part, path);
      merged = MergeSchemas(merged, Dereferenced(part, path), path);
    }
    return Value(merged, path, depth + 1);
  }

  // oneOf too: whether two ways hold at once can't be told by a grammar.
  ExprId AnyOf(const Json& schema, const char* keyword, const Json& any, const std::string& path,
               size_t depth) {
    if (!any.is_array() || any.empty())
      FailAt(path, fmt::format("{}: expected an array of schemas", keyword));
    const bool alone = OnlyAnnotations(schema, keyword);
    const Json rest = Copied(schema, {keyword});
    std::vector<ExprId> ways;
    for (size_t i = 0; i < any.size(); ++i) {
      const std::string under = Under(Under(path, keyword), std::to_string(i));
      ways.push_back(
          alone ? Value(any[i], under, depth + 1)
                : Value(MergeSchemas(rest, Dereferenced(any[i], under), under), under, depth + 1));
    }
    return Named("any-of", syntax_.Choice(ways));
  }

  static bool IsType(std::string_view name) {
    constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean",
                                           "null",   "array",  "object"};
    return std::find(std::begin(kTypes), std::end(kTypes), name) != std::end(kTypes);
  }

  // None twice: at most as many as there are.
  static std::vector<std::string> TypesOf(const Json& schema, const std::string& path) {
    std::vector<std::string> types;
    const auto type = schema.find("type");
    if (type == schema.end()) {
      const auto has = [&](std::initializer_list<const char*> keywords) {
        return std::any_of(keywords.begin(), keywords.end(),
                           [&](auto* keyword) { return schema.contains(keyword); });
      };
      // What it says about one type only, it is taken to mean.
      if (has({"properties", "required", "additionalProperties", "patternProperties",
               "minProperties", "maxProperties"}))
        types.push_back("object");
      if (has({"items", "prefixItems", "minItems", "maxItems"})) types.push_back("array");
      if (has({"pattern", "minLength", "maxLength", "format"})) types.push_back("string");
      if (has({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}))
        types.push_back("number");
      if (types.empty()) types.push_back("any");
    } else {
      const auto add = [&](const Json& one) {
        if (!one.is_string()) FailAt(path, "type: expected a name or an array of names");
        const auto& name = one.get_ref<const std::string&>();
        if (!IsType(name))
          FailAt(path, fmt::format("type: '{}' is not a type: expected string, number, integer, "
                                   "boolean, null, array or object",
                                   name.substr(0, 80)));
        if (std::find(types.begin(), types.end(), name) == types.end()) types.push_back(name);
      };
      if (type->is_array()) {
        SpendWork(type->size());
        for (const Json& one : *type) add(one);
      } else {
        add(*type);
      }
    }
    const auto has_type = [&](const char* name) {
      return std::find(types.begin(), types.end(), name) != types.end();
    };
    const auto nullable = schema.find("nullable");
    if (nullable != schema.end() && *nullable == true && !has_type("null")) types.push_back("null");
    if (has_type("number")) std::erase(types, "integer");
    return types;
  }

  ExprId OfType(const std::string& type, const Json& schema, const std::string& path,
                size_t depth) {
    if (type == "any") return AnyValue();
    if (type == "null") return Text("null");
    if (type == "boolean") return syntax_.Choice({Text("true"), Text("false")});
    if (type == "string") {
      const bool plain = !schema.contains("pattern") && !schema.contains("format") &&
                         !schema.contains("minLength") && !schema.contains("maxLength");
      return plain ? AnyString() : Named("string", AddString(syntax_, schema, path));
    }
    if (type == "integer" || type == "number") {
      const NumberBounds bounds = Bounds(schema, path);
      if (!bounds.least && !bounds.most) return type == "integer" ? AnyInteger() : AnyNumber();
      return Named("number",
                   type == "integer" ? AddInteger(syntax_, bounds) : AddNumber(syntax_, bounds));
    }
    ++braces_;
    const ExprId expr = type == "array" ? Array(schema, path, depth) : Object(schema, path, depth);
    --braces_;
    return expr;
  }

  static NumberBounds Bounds(const Json& schema, const std::string& path) {
    NumberBounds bounds;
    const auto read = [&](const char* keyword) -> const Json* {
      const auto found = schema.find(keyword);
      if (found == schema.end() || found->is_boolean()) return nullptr;
      if (!found->is_number()) FailAt(path, fmt::format("{}: expected a number", keyword));
      return &*found;
    };
    const auto decimal = [&](const Json& value) {
      try {
        return ParseDecimal(value.dump());
      } catch (const Error& error) {
        FailAt(path, error.what());
      }
    };
    const Json *low = read("minimum"), *above = read("exclusiveMinimum");
    const Json *high = read("maximum"), *below = read("exclusiveMaximum");
    // Draft 4: a flag beside the bound.
    const auto is_true = [&](const char* keyword) {
      const auto found = schema.find(keyword);
      return found != schema.end() && *found == true;
    };
    bounds.least_excluded = is_true("exclusiveMinimum");
    bounds.most_excluded = is_true("exclusiveMaximum");
    if (above != nullptr && (low == nullptr || *above >= *low))
      low = above, bounds.least_excluded = true;
    if (below != nullptr && (high == nullptr || *below <= *high))
      high = below, bounds.most_excluded = true;
    if (low != nullptr) bounds.least = decimal(*low);
    if (high != nullptr) bounds.most = decimal(*high);
    return bounds;
  }

  // --- enum and const ---

  static bool HasType(const Json& value, const std::string& type) {
    if (type == "any") return true;
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "string") return value.is_string();
    if (type == "integer")
      return value.is_number_integer() ||
             (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
    if (type == "number") return value.is_number();
    if (type == "array") return value.is_array();
    return type == "object" && value.is_object();
  }
  static size_t Characters(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
  }

  ExprId Constants(const Json& schema, const Json& values, const std::string& path) {
    std::vector<std::string> types = {"any"};
    if (schema.contains("type")) types = TypesOf(schema, path);
    for (const char* keyword :
         {"pattern", "properties", "items", "prefixItems", "patternProperties", "required"}) {
      if (schema.contains(keyword))
        FailAt(path, fmt::format("{} together with enum or const is not supported", keyword));
    }
    const auto keeps = [&](const Json& value, const char* keyword, auto holds) {
      const auto bound = schema.find(keyword);
      return bound == schema.end() || bound->is_boolean() || holds(value, *bound);
    };
    const uint32_t shortest = ReadCount(schema, "minLength", 0, path);
    const uint32_t longest = ReadCount(schema, "maxLength", kUnbounded, path);
    if (schema.contains("enum") && schema.contains("const"))
      SpendWork(StepsOf(schema["enum"]));  // compared with the one value
    std::vector<ExprId> ways;
    for (const Json& value : values) {
      SpendWork(StepsOf(value) + 1 + schema.size() / 2);
      bool valid =
          std::any_of(types.begin(), types.end(), [&](auto& type) { return HasType(value, type); });
      if (schema.contains("enum") && schema.contains("const"))
        valid = valid && std::find(schema["enum"].begin(), schema["enum"].end(), value) !=
                             schema["enum"].end();
      if (value.is_number()) {
        valid = valid && keeps(value, "minimum", [](auto& a, auto& b) { return a >= b; }) &&
                keeps(value, "maximum", [](auto& a, auto& b) { return a <= b; }) &&
                keeps(value, "exclusiveMinimum", [](auto& a, auto& b) { return a > b; }) &&
                keeps(value, "exclusiveMaximum", [](auto& a, auto& b) { return a < b; });
      }
      if (value.is_string()) {
        const size_t length = Characters(value.get_ref<const std::string&>());
        valid = valid && length >= shortest && length <= longest;
      }
      if (!valid) continue;
      ways.push_back(syntax_.Text(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
    return ways.size() > 1 ? Named("enum", syntax_.Choice(ways)) : syntax_.Choice(ways);
  }

  // --- arrays ---

  ExprId ItemValue(bool needed, const Json& schema, const std::string& path, size_t depth) {
    return needed ? Value(schema, path, depth) : OptionalValue(schema, path, depth);
  }

  ExprId Array(const Json& schema, const std::string& path, size_t depth) {
    const uint32_t least = ReadCount(schema, "minItems", 0, path);
    const uint32_t most = ReadCount(schema, "maxItems", kUnbounded, path);
    if (least > most) return syntax_.Never();
    std::vector<ExprId> prefix;
    const auto items = schema.find("items");
    const bool old_tuple = items != schema.end() && items->is_array();
    const auto tuple = old_tuple ? items : schema.find("prefixItems");
    if (tuple != schema.end()) {
      if (!tuple->is_array()) FailAt(path, "prefixItems: expected an array");
      const std::string under = Under(path, old_tuple ? "items" : "prefixItems");
      for (size_t i = 0; i < tuple->size(); ++i)
        prefix.push_back(Named(
            "item", ItemValue(i < least, (*tuple)[i], Under(under, std::to_string(i)), depth + 1)));
    }
    const char* rest_keyword = old_tuple ? "additionalItems" : "items";
    const auto rest = schema.find(rest_keyword);
    if (prefix.empty() && rest == schema.end() && least == 0 && most == kUnbounded)
      return AnyArray();
    const ExprId item = rest == schema.end()
                            ? AnyValue()
                            : Named("item", ItemValue(prefix.size() < least, *rest,
                                                      Under(path, rest_keyword), depth + 1));
    const bool never = rest != schema.end() && *rest == false;
    if (prefix.empty()) {
      const ExprId list =
          never ? (least == 0 ? syntax_.Empty() : syntax_.Never()) : ListOf(item, least, most);
      return Named("array", Braces("[", list, "]"));
    }
    // From the end: the items behind the prefix, then each item of it, which may be left out from
    // `least` on.
    const auto fixed = static_cast<uint32_t>(prefix.size());
    const uint32_t more_least = least > fixed ? least - fixed : 0;
    const uint32_t more_most = never || most <= fixed ? 0
                               : most == kUnbounded   ? kUnbounded
                                                      : most - fixed;
    ExprId tail = syntax_.Never();
    if (more_least <= more_most)
      tail = syntax_.Repeat(syntax_.Sequence({Comma(), item}), more_least, more_most);
    tail = Named("items", tail);
    for (uint32_t i = fixed; i-- > 0;) {
      ExprId here = i >= most
                        ? syntax_.Never()
                        : syntax_.Sequence({i > 0 ? Comma() : syntax_.Empty(), prefix[i],
                                            i > 0 ? tail : syntax_.Sequence({tail, Space()})});
      if (i >= least) here = syntax_.Optional(here);
      tail = Named("items", here);
    }
    return Named("array", Braces("[", tail, "]"));
  }

  // --- objects ---

  struct Property {
    std::string name;
    ExprId member;  // key, colon and value
    bool required;
  };

  ExprId Member(ExprId key, ExprId value) {
    return Named("member", syntax_.Sequence({key, Colon(), value}));
  }
  ExprId Key(const std::string& name) {
    return syntax_.Text(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  ExprId Object(const Json& schema, const std::string& path, size_t depth) {
    std::vector<Property> properties = Properties(schema, path, depth);
    std::vector<std::string> names;
    names.reserve(properties.size());
    for (const Property& property : properties) names.push_back(property.name);
    const ExprId other = OtherMember(schema, names, path, depth);
    CheckCounts(schema, properties, other, path);
    // An empty list of properties is a list: a function without parameters has no arguments.
    if (properties.empty() && !schema.contains("properties") &&
        !schema.contains("additionalProperties") && !schema.contains("patternProperties"))
      return AnyObject();
    // From the end: what follows the properties from i on, if nothing was written yet, and if
    // something was.
    ExprId first = other == syntax_.Never() ? syntax_.Empty() : ListOf(other, 0, kUnbounded);
    ExprId later = syntax_.Sequence(
        {syntax_.Repeat(syntax_.Sequence({Comma(), other}), 0, kUnbounded), Space()});
    for (size_t i = properties.size(); i-- > 0;) {
      const Property& property = properties[i];
      later = Named("later", later);
      const ExprId here = syntax_.Sequence({property.member, later});
      const ExprId here_later = syntax_.Sequence({Comma(), property.member, later});
      first = property.required ? here : syntax_.Choice({here, Named("first", first)});
      later = property.required ? here_later : syntax_.Choice({here_later, later});
    }
    return Named("object", Braces("{", first, "}"));
  }

  std::vector<Property> Properties(const Json& schema, const std::string& path, size_t depth) {
    std::vector<Property> properties;
    std::vector<std::string_view> required, names_listed;
    if (const auto names = schema.find("required"); names != schema.end() && !names->is_boolean()) {
      if (!names->is_array()) FailAt(path, "required: expected an array of names");
      for (const Json& name : *names) {
        if (!name.is_string()) FailAt(path, "required: expected an array of names");
        required.push_back(name.get_ref<const std::string&>());
      }
      SpendWork(16 * StepsOf(*names));  // sorting
    }
    std::sort(required.begin(), required.end());
    if (const auto listed = schema.find("properties"); listed != schema.end()) {
      if (!listed->is_object()) FailAt(path, "properties: expected an object");
      SpendWork(16 * listed->size());
      for (const auto& [name, value] : listed->get_ref<const Json::object_t&>()) {
        names_listed.push_back(name);
        const bool needed =
            std::binary_search(required.begin(), required.end(), std::string_view(name));
        const ExprId expr =
            ItemValue(needed, value, Under(Under(path, "properties"), name), depth + 1);
        if (expr == syntax_.Never() && !needed) continue;
        properties.push_back({name, Member(Key(name), expr), needed});
      }
    }
    required.erase(std::unique(required.begin(), required.end()), required.end());
    std::sort(names_listed.begin(), names_listed.end());
    std::optional<ExprId> unlisted;  // the value of one that is required only
    for (const std::string_view name : required) {
      if (std::binary_search(names_listed.begin(), names_listed.end(), name)) continue;
      if (!unlisted) {
        const auto additional = schema.find("additionalProperties");
        unlisted = additional == schema.end()
                       ? AnyValue()
                       : Named("value",
                               Value(*additional, Under(path, "additionalProperties"), depth + 1));
      }
      properties.push_back({std::string(name), Member(Key(std::string(name)), *unlisted), true});
    }
    return properties;
  }

  // A member that `properties` does not list; Never: there is none.
  ExprId OtherMember(const Json& schema, const std::vector<std::string>& names,
                     const std::string& path, size_t depth) {
    const auto patterns = schema.find("patternProperties");
    const auto additional = schema.find("additionalProperties");
    if (patterns != schema.end() && !patterns->empty()) {
      const bool closed = additional == schema.end() || *additional == false;
      if (!patterns->is_object() || patterns->size() > 1 || !names.empty() || !closed)
        FailAt(path,
               "patternProperties is supported with one pattern only, without properties and "
               "additionalProperties");
      const auto only = patterns->begin();
      const ExprId key =
          AddString(syntax_, Json{{"pattern", only.key()}}, Under(path, "patternProperties"));
      return Member(key,
                    OptionalValue(only.value(), Under(Under(path, "patternProperties"), only.key()),
                                  depth + 1));
    }
    // Where properties are listed and nothing is said of others, a model had better not make them
    // up.
    if (additional == schema.end() || *additional == false) return syntax_.Never();
    std::vector<std::string> all = names;
    if (const auto listed = schema.find("properties"); listed != schema.end()) {
      for (const auto& item : listed->get_ref<const Json::object_t&>())
        all.push_back(item.first);  // those that are false too
    }
    const ExprId value = OptionalValue(*additional, Under(path, "additionalProperties"), depth + 1);
    if (value == syntax_.Never()) return value;
    for (const std::string& name : all) {
      if (name.size() > kMostOtherKeyBytes)
        FailAt(path, fmt::format("a property's name of more than {} bytes together with "
                                 "additionalProperties is not supported",
                                 kMostOtherKeyBytes));
    }
    return Member(AddOtherKey(syntax_, std::move(all)), value);
  }

  void CheckCounts(const Json& schema, const std::vector<Property>& properties, ExprId other,
                   const std::string& path) {
    const uint32_t least = ReadCount(schema, "minProperties", 0, path);
    const uint32_t most = ReadCount(schema, "maxProperties", kUnbounded, path);
    const auto required = static_cast<size_t>(std::count_if(
        properties.begin(), properties.end(), [](const Property& p) { return p.required; }));
    if (least > required)
      FailAt(path, "minProperties above the number of required properties is not supported");
    const bool open = other != syntax_.Never() || !schema.contains("properties");
    if (most != kUnbounded && (open || most < properties.size()))
      FailAt(path, "maxProperties below the number of possible properties is not supported");
  }

  static constexpr RuleId kNone = UINT32_MAX;
  Syntax& syntax_;
  const Json& root_;
  size_t values_ = 0;
  RuleId space_ = kNone, string_ = kNone, number_ = kNone, integer_ = kNone, value_ = kNone,
         object_ = kNone, array_ = kNone;
  static constexpr size_t kClosed = SIZE_MAX;
  struct Referred {
    RuleId rule = kNone;
    size_t braces = kClosed;  // around it, while it is being read
  };
  std::map<std::string, Referred> references_;
  size_t braces_ = 0;  // arrays and objects around what is being read
  // A schema that was read; what its parent can do without is left out. Parents come before their
  // parts.
  struct Read {
    std::string path;
    ExprId expr;
    size_t parent;
  };
  std::vector<Read> reads_;
  size_t parent_ = SIZE_MAX;  // parent of the next entry of reads_
};

}  // namespace

Json ParseSchemaText(std::string_view text) {
  if (text.size() > kMostSchemaBytes)
    throw Error("the schema has {} bytes: expected at most {}", text.size(), kMostSchemaBytes);
  try {
    return ParseJsonText<Json>(text);
  } catch (const JsonError& error) {
    throw Error("the schema {}", error.what());
  }
}

ExprId AddJsonSchema(Syntax& syntax, const Json& schema, bool wants_text) {
  try {
    SpendWork(StepsOf(schema));
    SchemaReader reader(syntax, schema);
    const ExprId expr = reader.Run();
    if (wants_text) reader.WantText();
    return expr;
  } catch (const Json::exception& error) {  // an index of the wrong type that no check has named
    throw Error("schema: {}", error.what());
  }
}

}  // namespace larder::serving::grammar
