// Fields: reads the keys of one TOML table and checks their types. Done() throws an Error if the
// table has a key that was not asked for. Used by the manifest's files only.
#pragma once

#include <toml++/toml.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace larder::pipeline::inline manifest {

class Fields {
 public:
  // where: "server \"a\"", may be empty. The table must outlive this object.
  Fields(const toml::table& table, std::string path, std::string where)
      : table_(table), path_(std::move(path)), where_(std::move(where)) {}

  void set_where(std::string where) { where_ = std::move(where); }
  const std::string& where() const { return where_; }
  int line() const { return LineOf(table_); }

  std::optional<std::string> String(std::string_view key, const char* expected);
  std::optional<bool> Bool(std::string_view key);
  // An integer in [low, high].
  std::optional<int64_t> Integer(std::string_view key, int64_t low, int64_t high,
                                 const char* expected);
  // A number in (0, 1].
  std::optional<double> Fraction(std::string_view key);
  const toml::table* Table(std::string_view key);
  // An array of tables ([[key]]), not empty; null if the key is absent.
  const toml::array* Tables(std::string_view key);
  void Done() const;

  // PATH:LINE: WHERE: KEY = VALUE: PROBLEM
  [[noreturn]] void Fail(std::string_view key, const std::string& problem) const;
  // PATH:LINE: WHERE: PROBLEM, for a table that is wrong itself.
  [[noreturn]] void FailTable(const std::string& problem) const;

  static int LineOf(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

 private:
  const toml::node* Find(std::string_view key);

  const toml::table& table_;
  std::string path_, where_;
  std::vector<std::string> asked_;
};

}  // namespace larder::pipeline::manifest
