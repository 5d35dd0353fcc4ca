// `larder status`: the state of this server's sockets, which are asked one by one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/control_char.h"
#include "base/error.h"
#include "node/commands/command.h"
#include "node/options/model_options.h"
#include "node/service/exit_code.h"
#include "node/service/service_status.h"

namespace larder::node::inline commands {
namespace {

constexpr int kTimeoutMs = 2000;

struct StatusOptions {
  ModelOptions model;
  bool json = false;
};

struct Asked {
  std::string name, cluster, socket, role;  // socket and role as the manifest has them
};

// Without a manifest: all sockets that listen. With one: its sockets on this server, running or
// not.
std::vector<Asked> ToAsk(const StatusOptions& o) {
  std::vector<Asked> sockets;
  const auto where = LoadManifest(o.model);
  if (!where) {
    for (const std::string& name : StatusNames())
      sockets.push_back({name, "", name.substr(name.rfind('/') + 1), ""});
    return sockets;
  }
  const std::string& cluster = where->manifest.name;
  for (const auto& socket : where->server().sockets)
    sockets.push_back(
        {StatusName(cluster, socket.name), cluster, socket.name, pipeline::RoleName(socket.role)});
  return sockets;
}

// A field for a table. Another process may send anything: control characters are replaced, so that
// the terminal gets plain text.
std::string Field(const nlohmann::json& row, const char* key, int decimals = -1) {
  if (!row.contains(key)) return "";
  const nlohmann::json& value = row[key];
  if (value.is_number_float())
    return fmt::format("{:.{}f}", value.get<double>(), std::max(0, decimals));
  if (value.is_number()) return value.dump();
  if (!value.is_string()) return "?";
  std::string text = value.get<std::string>().substr(0, 100);
  std::replace_if(text.begin(), text.end(), IsControlChar, '?');
  return text;
}

std::string Percent(const nlohmann::json& row, const char* key) {
  if (!row.contains(key) || !row[key].is_number()) return "";
  return fmt::format("{:.0f} %", row[key].get<double>() * 100);
}

void PrintTable(const std::vector<nlohmann::json>& rows) {
  std::vector<std::vector<std::string>> table = {{"CLUSTER", "SOCKET", "ROLE", "LAYERS", "SLOTS",
                                                  "WEIGHTS MB", "KV MB", "RESIDENT", "STATE",
                                                  "FRAMES", "ROWS", "STEP us", "WAIT us", "LINK us",
                                                  "WAITING", "WRONG", "UP s", "PID", "VERSION"}};
  for (const auto& row : rows) {
    const bool answered = !row.contains("error");
    const std::string slots = Field(row, "slots");
    table.push_back({Field(row, "cluster"), Field(row, "socket"), Field(row, "role"),
                     Field(row, "layers"), slots == "0" ? "" : slots, Field(row, "weight_mb", 1),
                     Field(row, "kv_mb", 1), Percent(row, "resident_share_live"),
                     answered ? Field(row, "state") : Field(row, "error"), Field(row, "frames"),
                     Field(row, "rows"), Field(row, "step_us", 1), Field(row, "wait_us", 1),
                     Field(row, "link_us", 1), Percent(row, "waiting_share"),
                     Field(row, "wrong_frames"), Field(row, "uptime_s", 0), Field(row, "pid"),
                     Field(row, "version")});
  }
  std::vector<size_t> widths(table[0].size(), 0);
  for (const auto& line : table) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  for (const auto& line : table) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) text += fmt::format("{:<{}}  ", line[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
}

int Run(const StatusOptions& o) {
  std::vector<nlohmann::json> rows;
  bool all_answer = true;
  for (const Asked& asked : ToAsk(o)) {
    std::string problem;
    auto answer = AskStatus(asked.name, kTimeoutMs, &problem);
    if (!answer) {
      all_answer = false;
      answer = {{"cluster", asked.cluster},
                {"socket", asked.socket},
                {"role", asked.role},
                {"error", problem}};
    }
    rows.push_back(std::move(*answer));
  }
  if (o.json) {
    const nlohmann::json all = {{"sockets", rows}};
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (rows.empty()) {
    fmt::print("no socket of a cluster and no `larder serve` is running on this server\n");
  } else {
    PrintTable(rows);
  }
  return all_answer ? kDone : kFailed;
}

}  // namespace

Command AddStatus(CLI::App& program) {
  auto o = std::make_shared<StatusOptions>();
  CLI::App* command =
      program.add_subcommand("status", "show what the sockets on this server are doing");
  command
      ->add_option("--manifest", o->model.manifest,
                   "ask this manifest's sockets (default: the sockets that are running)")
      ->type_name("FILE");
  command
      ->add_option("--server", o->model.server,
                   "which server of the manifest this is (default: by host name)")
      ->type_name("NAME");
  command->add_flag("--json", o->json, "print JSON");
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
