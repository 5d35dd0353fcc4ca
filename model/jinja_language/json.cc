// json.dumps as the filter tojson calls it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/jinja_language/value.h"

namespace larder::model::inline jinja_language {
namespace {

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  void Write(const Value& v, size_t depth) {
    if (depth > kMaxValueDepth) throw LimitReached{"tojson: a list or dict is nested too deeply"};
    switch (v.kind) {
      case Kind::kNone:
        out += "null";
        return;
      case Kind::kBool:
        out += v.boolean ? "true" : "false";
        return;
      case Kind::kInt:
        out += std::to_string(v.integer);
        return;
      case Kind::kFloat:
        out += v.whole() ? std::to_string(v.AsNatural()) : Number(v.real);
        return;
      case Kind::kString:
        String(v.view());
        return;
      case Kind::kList:
      case Kind::kTuple: {
        Sequence('[', ']', v.list->items.size(), depth,
                 [&](size_t i) { Write(v.list->items[i], depth + 1); });
        return;
      }
      case Kind::kDict:
        return Object(v, depth);
      default:
        throw TypeMismatch{fmt::format("Object of type {} is not JSON serializable", TypeName(v))};
    }
  }

  std::string out;

 private:
  static std::string Number(double d) {
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d < 0 ? "-Infinity" : "Infinity";
    return PrintFloat(d);
  }

  void Object(const Value& v, size_t depth) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : v.dict->entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return Compare(a->first, b->first) < 0;
      });
    }
    Sequence('{', '}', entries.size(), depth, [&](size_t i) {
      Key(entries[i]->first);
      out += style_.key_separator;
      Write(entries[i]->second, depth + 1);
    });
  }

  void Key(const Value& key) {
    switch (key.kind) {
      case Kind::kString:
        return String(key.view());
      case Kind::kNone:
        return String("null");
      case Kind::kBool:
        return String(key.boolean ? "true" : "false");
      case Kind::kInt:
        return String(std::to_string(key.integer));
      case Kind::kFloat:
        return String(key.whole() ? std::to_string(key.AsNatural()) : Number(key.real));
      default:
        throw TypeMismatch{
            fmt::format("keys must be str, int, float, bool or None, not {}", TypeName(key))};
    }
  }

  template <typename Element>
  void Sequence(char open, char close, size_t count, size_t depth, Element&& element) {
    out += open;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += style_.item_separator;
      Newline(depth + 1);
      element(i);
    }
    if (count > 0) Newline(depth);
    out += close;
  }

  void Newline(size_t depth) {
    if (!style_.has_indent) return;
    out += '\n';
    for (size_t i = 0; i < depth; ++i) out += style_.indent;
  }

  void String(std::string_view text) {
    out += '"';
    for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
      const uint32_t c = CharAt(text, at, &bytes);
      switch (c) {
        case '"':
          out += "\\\"";
          break;
        case '\\':
          out += "\\\\";
          break;
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        case '\b':
          out += "\\b";
          break;
        case '\f':
          out += "\\f";
          break;
        default:
          if (c < 0x20 || (style_.ascii && c >= 0x7f)) {
            if (c >= 0x10000) {
              Escape(0xD800 + ((c - 0x10000) >> 10));
              Escape(0xDC00 + ((c - 0x10000) & 0x3FF));
            } else {
              Escape(c);
            }
          } else {
            out += text.substr(at, bytes);
          }
      }
    }
    out += '"';
  }

  void Escape(uint32_t unit) {
    constexpr char kHex[] = "0123456789abcdef";
    out += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[unit >> shift & 15];
  }

  const JsonStyle& style_;
};

}  // namespace

std::string ToJson(const Value& v, const JsonStyle& style) {
  Writer writer(style);
  writer.Write(v, 0);
  return std::move(writer.out);
}

}  // namespace larder::model::jinja_language
