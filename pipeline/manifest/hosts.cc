#include "pipeline/manifest/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "pipeline/manifest/links.h"
#include "pipeline/manifest/manifest.h"

namespace larder::pipeline::inline manifest {
namespace {

constexpr std::string_view kHost = "{host}", kRank = "{rank}";
constexpr int kMostNumber = 1'000'000;  // in a host's name

bool IsHostChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

class HostParser {
 public:
  HostParser(std::string_view list, const std::string& source) : list_(list), source_(source) {}

  std::vector<std::string> Hosts() {
    for (std::string_view entry = Entry(); !entry.empty(); entry = Entry()) Expand("", entry);
    if (hosts_.empty()) throw Error("{}: names no host", source_);
    return std::move(hosts_);
  }

 private:
  static bool Separates(char c) { return c == ',' || c == ' ' || c == '\n' || c == '\t'; }

  [[noreturn]] void Refuse(std::string_view entry, std::string_view what) const {
    throw Error("{}: '{}': {}; expected hosts such as a,b or node[01-04,7]", source_,
                entry.substr(0, 60), what);
  }

  // The text up to the next separator outside of brackets.
  std::string_view Entry() {
    while (!list_.empty() && Separates(list_.front())) list_.remove_prefix(1);
    size_t length = 0;
    for (bool inside = false; length < list_.size(); ++length) {
      if (list_[length] == '[') inside = true;
      if (list_[length] == ']') inside = false;
      if (!inside && Separates(list_[length])) break;
    }
    const std::string_view entry = list_.substr(0, length);
    list_.remove_prefix(length);
    return entry;
  }

  // The hosts that begin with `begin`, already read, and end in any way of `rest`.
  void Expand(const std::string& begin, std::string_view rest) {
    const size_t open = rest.find('[');
    const std::string_view plain = rest.substr(0, open);
    if (!std::ranges::all_of(plain, IsHostChar)) Refuse(plain, "not a host's name");
    const std::string name = begin + std::string(plain);
    if (open == rest.npos) {
      Add(name);
      return;
    }
    const size_t close = rest.find(']', open);
    if (close == rest.npos) Refuse(rest, "a bracket is not closed");
    std::string_view ranges = rest.substr(open + 1, close - open - 1);
    for (bool more = true; more;) {
      const size_t comma = ranges.find(',');
      const std::string_view range = ranges.substr(0, comma);
      const size_t dash = range.find('-');
      const std::string_view first = range.substr(0, dash);
      const auto from = ParseNumber(first, kMostNumber),
                 to = dash == range.npos ? from : ParseNumber(range.substr(dash + 1), kMostNumber);
      if (!from || !to || *to < *from || *to - *from >= static_cast<int>(kMostHosts))
        Refuse(rest.substr(open, close - open + 1), "not numbers or ascending ranges");
      for (int number = *from; number <= *to; ++number)
        Expand(fmt::format("{}{:0{}}", name, number, first.size()), rest.substr(close + 1));
      more = comma != ranges.npos;
      if (more) ranges.remove_prefix(comma + 1);
    }
  }

  void Add(const std::string& host) {
    if (!known_.insert(host).second) throw Error("{}: names host {} twice", source_, host);
    if (hosts_.size() == kMostHosts) throw Error("{}: more than {} hosts", source_, kMostHosts);
    hosts_.push_back(host);
  }

  std::string_view list_;
  const std::string& source_;
  std::vector<std::string> hosts_;
  std::set<std::string> known_;
};

std::string Replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string out;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what)) {
    out.append(text.substr(0, at)).append(with);
    text.remove_prefix(at + what.size());
  }
  return out.append(text);
}

bool BeginsServer(std::string_view line) {
  const size_t begin = line.find_first_not_of(" \t");
  return begin != line.npos && line.substr(begin).starts_with("[[server]]");
}

// The text up to the next line that begins a server, which is not the first line; takes it away.
std::string_view TakeUntilServer(std::string_view& text) {
  size_t end = text.size();
  for (size_t line = text.find('\n'); line != text.npos; line = text.find('\n', line + 1)) {
    if (!BeginsServer(text.substr(line + 1))) continue;
    end = line + 1;
    break;
  }
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end);
  return part;
}

}  // namespace

std::vector<std::string> ParseHosts(std::string_view list, const std::string& source) {
  return HostParser(list, source).Hosts();
}

std::vector<std::string> LeaderWorkerHosts(
    const std::function<const char*(const char* name)>& variable) {
  const auto value = [&](const char* name) {
    const char* const text = variable(name);
    if (text == nullptr)
      throw Error("{} is not set: this is no pod of a LeaderWorkerSet; expected --hosts", name);
    return std::string(text);
  };
  const std::string leader = value("LWS_LEADER_ADDRESS"), size = value("LWS_GROUP_SIZE");
  const size_t dot = leader.find('.');
  if (dot == 0 || dot == leader.npos || !std::ranges::all_of(leader, IsHostChar))
    throw Error("LWS_LEADER_ADDRESS: '{}'; expected NAME-0.SERVICE.NAMESPACE", leader);
  const auto pods = ParseNumber(size, kMostHosts);
  if (!pods || *pods == 0)
    throw Error("LWS_GROUP_SIZE: '{}'; expected a number from 1 to {}", size, kMostHosts);
  std::vector<std::string> hosts = {leader};
  for (int i = 1; i < *pods; ++i)
    hosts.push_back(fmt::format("{}-{}{}", leader.substr(0, dot), i, leader.substr(dot)));
  return hosts;
}

std::string ExpandManifest(std::string_view text, const std::string& path,
                           const std::vector<std::string>& hosts) {
  std::string out;
  if (!BeginsServer(text)) out = TakeUntilServer(text);
  bool is_template = false;
  while (!text.empty()) {
    const std::string_view server = TakeUntilServer(text);
    if (server.find(kHost) == server.npos) {
      out.append(server);
      continue;
    }
    is_template = true;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      out.append(Replaced(Replaced(server, kRank, std::to_string(rank)), kHost, hosts[rank]));
      if (!out.ends_with('\n')) out.push_back('\n');
    }
  }
  if (!is_template)
    throw Error("{}: no [[server]] has {} in its name or address; expected one, for each host",
                path, kHost);
  try {
    Manifest::Parse(out, path);
  } catch (const Error& error) {
    throw Error("{} (lines are those of what it expands to)", error.what());
  }
  return out;
}

}  // namespace larder::pipeline::manifest
