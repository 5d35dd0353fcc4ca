// How a file of filters, tests, functions or methods offers them: a table of names.
#pragma once

#include <span>
#include <string_view>

#include "model/jinja_language/rendering.h"

namespace larder::model::inline jinja {

struct NamedBuiltin {
  std::string_view name;
  Builtin function;
};

const Builtins& Library();  // all tables as one; if a name is in several, the first counts
Builtin FindFilter(std::string_view name);
Builtin FindTest(std::string_view name);
Builtin FindMethod(Kind, std::string_view name);

std::span<const NamedBuiltin> ListFilters();
std::span<const NamedBuiltin> TextFilters();
std::span<const NamedBuiltin> Tests();
std::span<const NamedBuiltin> Globals();
std::span<const NamedBuiltin> StringMethods();
std::span<const NamedBuiltin> StringQuestions();
std::span<const NamedBuiltin> DictMethods();
std::span<const NamedBuiltin> ListMethods();
std::span<const NamedBuiltin> TupleMethods();
std::span<const NamedBuiltin> LoopMethods();

// "a.b.0" of a value, as the filters' `attribute` arguments name it; an int is an element.
Value AttributePath(Rendering&, const Value& object, const Value& path);
// str.strip and its halves: bytes [begin, end) that stay. `chars` none: white space.
void StripRange(std::string_view text, const Value& chars, bool left, bool right, size_t* begin,
                size_t* end);
Text MapChars(const Text&, uint32_t (*map)(uint32_t));  // German sharp s becomes SS where map is
                                                        // UpperChar
// times < 0: all
Text Replaced(Rendering&, const Text&, const Text& from, const Text& to, int64_t times);
Text Centered(Rendering&, const Text&, int64_t width, std::string_view fill,
              int align);  // -1: left, 0, 1: right
std::vector<Text> SplitLines(const Text&, bool keep_ends);

}  // namespace larder::model::jinja
