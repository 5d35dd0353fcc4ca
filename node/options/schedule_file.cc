#include "node/options/schedule_file.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/json_text.h"
#include "base/new_file.h"
#include "kernels/formats/numerics.h"
#include "topology/host.h"

namespace larder::node::inline options {
namespace {

using kernels::ActLoad;
using kernels::Prefetch;
using kernels::Schedule;
using kernels::ScheduleTable;
using nlohmann::json;

constexpr size_t kFileVersion = 4;
constexpr size_t kMaxFileBytes = 1 << 20, kMaxBlocks = 1 << 20;

// A member of a JSON object, by name; Error if it is missing or no number in 0 .. most.
size_t Number(const json& object, const char* key, size_t most) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number_unsigned() || at->get<uint64_t>() > most)
    throw Error("'{}' is not a whole number up to {}", key, most);
  return at->get<size_t>();
}

bool Bool(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_boolean()) throw Error("'{}' is not true or false", key);
  return at->get<bool>();
}

template <size_t kNames>
size_t OneOf(const json& object, const char* key,
             const std::array<std::string_view, kNames>& names) {
  const auto at = object.find(key);
  if (at != object.end() && at->is_string()) {
    const auto found = std::find(names.begin(), names.end(), at->get_ref<const std::string&>());
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
  }
  throw Error("'{}' is not one of {}", key, fmt::join(names, ", "));
}

void ExpectKeys(const json& object, std::initializer_list<std::string_view> keys) {
  if (!object.is_object()) throw Error("expected an object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      throw Error("unknown key '{}'", key);
  }
}

json ToJson(const Schedule& s, size_t rows) {
  return {{"for_rows", rows},
          {"rows", s.tile.rows},
          {"panels", s.tile.panels},
          {"load", kernels::Name(s.tile.load)},
          {"prefetch", kernels::Name(s.tile.prefetch)},
          {"prefetch_bytes", s.tile.prefetch_bytes},
          {"slice_blocks", s.slice.blocks},
          {"slice_panels", s.slice.panels},
          {"slice_rows", s.slice.rows == SIZE_MAX ? 0 : s.slice.rows},
          {"slice_unpacked", s.slice.unpacked}};
}

Schedule FromJson(const json& object, kernels::Isa isa, size_t rows) {
  ExpectKeys(object, {"for_rows", "rows", "panels", "load", "prefetch", "prefetch_bytes",
                      "slice_blocks", "slice_panels", "slice_rows", "slice_unpacked"});
  constexpr size_t kLargest = 1 << 20;
  if (Number(object, "for_rows", kLargest) != rows) throw Error("'for_rows' is not {}", rows);
  Schedule s;
  s.tile = {.rows = Number(object, "rows", kLargest),
            .panels = Number(object, "panels", kLargest),
            .load = static_cast<ActLoad>(OneOf(object, "load", kernels::kActLoadNames)),
            .prefetch = static_cast<Prefetch>(OneOf(object, "prefetch", kernels::kPrefetchNames)),
            .prefetch_bytes = Number(object, "prefetch_bytes", kLargest)};
  s.slice = {.blocks = Number(object, "slice_blocks", kLargest),
             .panels = Number(object, "slice_panels", kLargest),
             .rows = Number(object, "slice_rows", kLargest),
             .unpacked = Bool(object, "slice_unpacked")};
  if (s.slice.rows == 0) s.slice.rows = SIZE_MAX;
  if (!kernels::ScheduleFits(isa, s))
    throw Error("the schedule for {} rows does not fit {}", rows, kernels::IsaName(isa));
  return s;
}

const kernels::PanelFormat& FormatOf(const json& object) {
  std::array<std::string_view, kernels::kPanelFormats.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kernels::kPanelFormats[i]->name;
  return *kernels::kPanelFormats[OneOf(object, "format", names)];
}

json ToJson(const ScheduleTable& table) {
  json schedules = json::array();
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of)
    schedules.push_back(ToJson(table.of[of], ScheduleTable::Rows(of)));
  return schedules;
}

ScheduleTable TableFromJson(const json& object, const char* key, kernels::Isa isa) {
  const auto schedules = object.find(key);
  if (schedules == object.end() || !schedules->is_array() ||
      schedules->size() != ScheduleTable::kRowClasses) {
    throw Error("'{}' is not a list of {} schedules", key, ScheduleTable::kRowClasses);
  }
  ScheduleTable table;
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of)
    table.of[of] = FromJson((*schedules)[of], isa, ScheduleTable::Rows(of));
  return table;
}

kernels::KernelTuning::Tuned ProductsFromJson(const json& object, kernels::Isa isa) {
  ExpectKeys(object, {"format", "blocks", "weight_bytes", "schedules"});
  kernels::KernelTuning::Tuned tuned{
      .panel = {Number(object, "blocks", kMaxBlocks), FormatOf(object)},
      .weight_bytes = Number(object, "weight_bytes", kernels::KernelTuning::kMostTunedBytes),
      .products = TableFromJson(object, "schedules", isa)};
  if (tuned.panel.blocks == 0) throw Error("'blocks' is 0");
  return tuned;
}

kernels::KernelTuning::TunedAttention AttentionFromJson(const json& object, kernels::Isa isa) {
  ExpectKeys(object, {"blocks", "group", "value_sums", "value_queries", "tile_queries", "scores"});
  using Tuning = kernels::AttentionTuning;
  const kernels::KernelTuning::TunedAttention tuned{
      .blocks = Number(object, "blocks", kMaxBlocks),
      .group = Number(object, "group", Tuning::kMaxTileQueries),
      .attention = {.scores = TableFromJson(object, "scores", isa),
                    .value_sums = Number(object, "value_sums", Tuning::kMaxValueSums),
                    .value_queries = Number(object, "value_queries", Tuning::kMaxValueSums),
                    .tile_queries = Number(object, "tile_queries", Tuning::kMaxTileQueries)}};
  if (tuned.blocks == 0 || tuned.group == 0) throw Error("'blocks' or 'group' of attention is 0");
  if (const std::string why = kernels::WhyNotFit(isa, tuned.attention); !why.empty())
    throw Error("attention: {}", why);
  return tuned;
}

// A member of the file that is a list of up to `most`.
const json& List(const json& all, const char* key, size_t most) {
  const auto list = all.find(key);
  if (list == all.end() || !list->is_array() || list->size() > most)
    throw Error("'{}' is not a list of up to {}", key, most);
  return *list;
}

std::string Text(const json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_string()) throw Error("'{}' is not a string", key);
  return at->get<std::string>();
}

}  // namespace

std::string ScheduleMachine(kernels::Isa isa, const kernels::CoreShape& core) {
  static const std::string cpu = topology::CpuName();  // a long file on a large machine
  return fmt::format("{}; L1 {} bytes, L2 {} bytes; {}, arithmetic {}, generator {}", cpu,
                     core.l1_bytes, core.l2_bytes, kernels::IsaName(isa),
                     kernels::kArithmeticVersion, kernels::kGeneratorVersion);
}

std::string FormatSchedules(const ScheduleFile& file) {
  json products = json::array();
  for (const auto& tuned : file.products) {
    products.push_back({{"format", tuned.panel.format.name},
                        {"blocks", tuned.panel.blocks},
                        {"weight_bytes", tuned.weight_bytes},
                        {"schedules", ToJson(tuned.products)}});
  }
  json attention = json::array();
  for (const auto& [blocks, group, tuning] : file.attention) {
    attention.push_back({{"blocks", blocks},
                         {"group", group},
                         {"value_sums", tuning.value_sums},
                         {"value_queries", tuning.value_queries},
                         {"tile_queries", tuning.tile_queries},
                         {"scores", ToJson(tuning.scores)}});
  }
  const json all = {{"larder_schedules", kFileVersion},
                    {"machine", file.machine},
                    {"tuned_at", file.tuned_at},
                    {"products", std::move(products)},
                    {"attention", std::move(attention)}};
  return all.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

ScheduleFile ParseSchedules(std::string_view text, kernels::Isa isa, const std::string& name,
                            const kernels::CoreShape& core) {
  constexpr std::string_view kAdvice = "run `larder tune` again, or give --schedules none";
  const auto parsed = TryParseJsonText<json>(text);
  if (!parsed) throw Error("{}: not JSON; {}", name, kAdvice);
  const json& all = *parsed;
  try {
    ExpectKeys(all, {"larder_schedules", "machine", "tuned_at", "products", "attention"});
    const size_t version = Number(all, "larder_schedules", SIZE_MAX);
    if (version != kFileVersion)
      throw Error("it has version {}, and this build reads {}", version, kFileVersion);
    ScheduleFile file{.machine = Text(all, "machine"), .tuned_at = Text(all, "tuned_at")};
    const json& products = List(all, "products", kMaxScheduleTables);
    const json& attention = List(all, "attention", kMaxAttentionTunings);
    // Those of another machine may have tiles that this one has no registers for; nobody uses them.
    if (file.machine != ScheduleMachine(isa, core)) return file;
    for (const json& object : products) {
      file.products.push_back(ProductsFromJson(object, isa));
      const auto& [panel, bytes, table] = file.products.back();
      for (size_t i = 0; i + 1 < file.products.size(); ++i) {
        if (file.products[i].panel == panel && file.products[i].weight_bytes == bytes)
          throw Error("two tables for {} blocks of {} and {} bytes of weights", panel.blocks,
                      panel.format.name, bytes);
      }
    }
    for (const json& object : attention) {
      file.attention.push_back(AttentionFromJson(object, isa));
      const auto& [blocks, group, tuning] = file.attention.back();
      for (size_t i = 0; i + 1 < file.attention.size(); ++i) {
        if (file.attention[i].blocks == blocks && file.attention[i].group == group)
          throw Error("two tunings of attention for {} blocks and groups of {}", blocks, group);
      }
    }
    return file;
  } catch (const Error& error) {
    throw Error("{}: not a file of `larder tune`: {}; {}", name, error.what(), kAdvice);
  }
}

std::string UserSchedules() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/larder/schedules.json";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return std::string(home) + "/.cache/larder/schedules.json";
  return "";
}

std::string ChooseSchedules(const std::string& given) {
  if (given == "none") return "";
  if (!given.empty()) return given;
  std::error_code ignored;
  for (const std::string& path : {UserSchedules(), std::string(kSystemSchedules)}) {
    if (!path.empty() && std::filesystem::exists(path, ignored)) return path;
  }
  return "";
}

ScheduleFile ReadSchedules(const std::string& path, kernels::Isa isa,
                           const kernels::CoreShape& core) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw Error("{}: is a folder", path);
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    throw Error("{}: can't be read: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes)
    throw Error("{}: more than {} bytes; not a file of `larder tune`", path, kMaxFileBytes);
  return ParseSchedules(text, isa, path, core);
}

void WriteSchedules(const std::string& path, const ScheduleFile& schedules) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code failed;
  if (!folder.empty()) std::filesystem::create_directories(folder, failed);
  if (failed) throw Error("{}: can't be made: {}", folder.string(), failed.message());
  NewFile file(path);
  const std::string text = FormatSchedules(schedules);
  file.Write(text.data(), text.size());
  file.Commit();
}

kernels::KernelTuning TuningWith(kernels::Isa isa, const std::string& given,
                                 const kernels::CoreShape& core) {
  kernels::KernelTuning tuning = kernels::DefaultTuning(isa, core);
  const std::string path = ChooseSchedules(given);
  if (path.empty() || isa == kernels::Isa::kScalar) return tuning;
  const bool named = !given.empty();
  try {
    ScheduleFile file = ReadSchedules(path, isa, core);
    if (file.machine == ScheduleMachine(isa, core)) {
      tuning.tuned = std::move(file.products);
      tuning.tuned_attention = std::move(file.attention);
    } else if (named) {
      throw Error("{}: tuned for '{}', but this is '{}'; run `larder tune -o {}`", path,
                  file.machine, ScheduleMachine(isa, core), path);
    } else {
      spdlog::info("{}: tuned for another CPU, instruction set or version; not used", path);
    }
  } catch (const Error& error) {
    if (named) throw;
    spdlog::warn("{}; continuing without", error.what());
  }
  return tuning;
}

}  // namespace larder::node::options
