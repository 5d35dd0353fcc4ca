#include "model/jinja/functions.h"

#include <unordered_map>

namespace larder::model::inline jinja {
namespace {

using Table = std::unordered_map<std::string_view, Builtin>;

Table Joined(std::initializer_list<std::span<const NamedBuiltin>> lists) {
  Table table;
  for (const auto list : lists) {
    for (const NamedBuiltin& entry : list) table.emplace(entry.name, entry.function);
  }
  return table;
}

Builtin Find(const Table& table, std::string_view name) {
  const auto it = table.find(name);
  return it == table.end() ? nullptr : it->second;
}

Builtin FindGlobal(std::string_view name) {
  static const Table table = Joined({Globals()});
  return Find(table, name);
}

}  // namespace

Builtin FindFilter(std::string_view name) {
  static const Table table = Joined({ListFilters(), TextFilters()});
  return Find(table, name);
}

Builtin FindTest(std::string_view name) {
  static const Table table = Joined({Tests()});
  return Find(table, name);
}

Builtin FindMethod(Kind kind, std::string_view name) {
  static const Table strings = Joined({StringMethods(), StringQuestions()});
  static const Table dicts = Joined({DictMethods()});
  static const Table lists = Joined({ListMethods()});
  static const Table tuples = Joined({TupleMethods()});
  static const Table loops = Joined({LoopMethods()});
  switch (kind) {
    case Kind::kString:
      return Find(strings, name);
    case Kind::kDict:
      return Find(dicts, name);
    case Kind::kList:
      return Find(lists, name);
    case Kind::kTuple:
      return Find(tuples, name);
    case Kind::kLoop:
      return Find(loops, name);
    default:
      return nullptr;
  }
}

const Builtins& Library() {
  static constexpr Builtins builtins{FindFilter, FindTest, FindGlobal, FindMethod};
  return builtins;
}

}  // namespace larder::model::jinja
