#include "serving/answer/answer_parser.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "serving/answer/answer_machine.h"
#include "serving/answer/delta_sink.h"
#include "serving/answer/format_entry.h"
#include "serving/answer/markers.h"

namespace larder::serving::inline answer {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014): a full-period mixer.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

}  // namespace

uint64_t AnswerIdSeed(std::string_view prompt, uint64_t seed, size_t choice) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: the same on every machine
  for (const char c : prompt) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return Mix(hash ^ Mix(seed ^ Mix(choice)));
}

std::string ToolCallId(AnswerFormat format, uint64_t id_seed, size_t call, size_t calls_before,
                       std::string_view name) {
  const CallIds& ids = EntryOf(format).ids;
  if (ids.numbered) {
    return "functions." + std::string(name) + ":" + std::to_string(calls_before + call);
  }
  std::string id(ids.prefix);
  const size_t length = id.size() + ids.letters;
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  for (uint64_t state = Mix(id_seed) ^ Mix(call + 1); id.size() < length;) {
    state = Mix(state);
    id += kLetters[state % kLetters.size()];
  }
  return id;
}

void DeltaSink::Begin(std::string_view name, std::string_view id) {
  open_ = true;
  ++writes_;
  deltas_.push_back({.kind = AnswerDelta::Kind::kCallBegin,
                     .call = calls_,
                     .text = std::string(name),
                     .id = id.empty() || !EntryOf(format_).ids.numbered
                               ? ToolCallId(format_, id_seed_, calls_, calls_before_, name)
                               : std::string(id)});
  ++calls_;
}

void DeltaSink::End() {
  open_ = false;
  ++writes_;
  deltas_.push_back(
      {.kind = AnswerDelta::Kind::kCallEnd, .call = calls_ - 1, .text = {}, .id = {}});
}

void DeltaSink::Add(AnswerDelta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  ++writes_;
  if (deltas_.empty() || deltas_.back().kind != kind) {
    const size_t call = kind == AnswerDelta::Kind::kArguments ? calls_ - 1 : 0;
    deltas_.push_back({.kind = kind, .call = call, .text = {}, .id = {}});
  }
  deltas_.back().text += text;
}

namespace {

// Of formats without a reader of their own: text in which markers stand.
class MarkedText final : public AnswerParser::Machine {
 public:
  explicit MarkedText(const AnswerParserOptions& options)
      : Machine(options),
        tools_(options.tools),
        markers_(MarkersOf(options.format, options.parse_tools, options.parse_reasoning)),
        // A prompt that ends in a closed thought is answered with newlines first.
        trim_(EntryOf(options.format).trims),
        swallow_(trim_),
        hold_newlines_(options.parse_tools) {
    if (options.starts_in_reasoning && options.parse_reasoning) mode_ = Mode::kThought;
    for (const Marker& marker : markers_) {
      if (!marker.text.empty()) starts_[static_cast<unsigned char>(marker.text.front())] = true;
    }
    const auto unmarked = std::ranges::find(markers_, std::string_view(), &Marker::text);
    if (unmarked == markers_.end()) return;
    const Marker opens_message = *unmarked;
    markers_.erase(unmarked);
    if (mode_ == Mode::kText) Match(opens_message);
  }

  void Add(std::string_view text) override {
    sources_.push_back({std::string(text), 0});
    Run();
  }

  void Finish() override {
    while (!pending_.empty()) {
      Resolve(true);
      Run();
    }
    if (mode_ == Mode::kCall) FinishCall();
    if (mode_ == Mode::kText && !(fresh_ && swallow_)) sink_.Content(space_);
    space_.clear();
  }

 private:
  enum class Mode : uint8_t { kText, kThought, kCall };
  struct Source {
    std::string text;
    size_t at;
  };

  void Run() {
    while (!sources_.empty()) {
      Source& top = sources_.back();
      if (top.at == top.text.size()) {
        sources_.pop_back();
      } else if (mode_ != Mode::kCall && pending_.empty() && TakeRun(top)) {
        continue;
      } else {
        const char c = top.text[top.at++];
        if (mode_ == Mode::kCall) {
          CallByte(c);
        } else {
          pending_ += c;
          Resolve(false);
        }
      }
    }
  }

  // The fast path: bytes that no marker starts with.
  bool TakeRun(Source& source) {
    size_t end = source.at;
    while (end < source.text.size() && !starts_[static_cast<unsigned char>(source.text[end])]) {
      Plain(source.text[end++]);
    }
    const bool taken = end > source.at;
    source.at = end;
    return taken;
  }

  void Again(std::string text) {
    if (!text.empty()) sources_.push_back({std::move(text), 0});
  }

  bool Active(const Marker& marker) const {
    using Where = Marker::Where;
    if (mode_ == Mode::kThought) {
      return marker.where == Where::kAnywhereEven || marker.action == Marker::Action::kThinkEnd;
    }
    switch (marker.where) {
      case Where::kFresh:
        return fresh_;
      case Where::kAfterCall:
        return fresh_ && after_call_;
      default:
        return true;
    }
  }

  // Decides about pending_: it may become a longer marker, it is one, or its first byte is text.
  void Resolve(bool at_end) {
    const Marker* match = nullptr;
    for (const Marker& marker : markers_) {
      if (!Active(marker)) continue;
      if (!at_end && marker.text.size() > pending_.size() && marker.text.starts_with(pending_))
        return;
      const bool longer = match == nullptr || marker.text.size() > match->text.size();
      if (longer && pending_.starts_with(marker.text)) match = &marker;
    }
    std::string rest = pending_.substr(match != nullptr ? match->text.size() : 1);
    const char first = pending_.front();
    pending_.clear();
    Again(std::move(rest));
    if (match != nullptr) {
      Match(*match);
    } else {
      Plain(first);
    }
  }

  void Match(const Marker& marker) {
    if (marker.action == Marker::Action::kCall) {
      before_ = {mode_, space_, fresh_, swallow_, after_call_};
      marker_ = marker.text;
      raw_.clear();
      block_calls_ = sink_.calls();
      machine_ = marker.make(sink_, tools_);
      mode_ = Mode::kCall;
      for (const char c : marker.text.substr(marker.text.size() - marker.feed)) machine_->Next(c);
    } else if (marker.action == Marker::Action::kThink) {
      mode_ = Mode::kThought;
      begun_thought_ = false;
    } else {
      const bool stays_after_call = marker.action == Marker::Action::kSkip && after_call_ && fresh_;
      Fresh(stays_after_call);
    }
    space_.clear();
  }

  void Fresh(bool after_call) {
    mode_ = Mode::kText;
    fresh_ = true;
    swallow_ = true;
    after_call_ = after_call;
    space_.clear();
  }

  void Plain(char c) {
    const bool space = IsJsonSpace(c);
    if (mode_ == Mode::kThought) {
      if (space) {
        space_ += c;
        return;
      }
      if (begun_thought_) sink_.Reasoning(space_);
      begun_thought_ = true;
      space_.clear();
      sink_.Reasoning({&c, 1});
      return;
    }
    if ((space && fresh_) || (c == '\n' && hold_newlines_)) {
      space_ += c;
      return;
    }
    if (!space_.empty()) {
      if (fresh_ && swallow_)
        space_.erase(0, std::min(space_.find_first_not_of('\n'), space_.size()));
      sink_.Content(space_);
      space_.clear();
    }
    fresh_ = false;
    sink_.Content({&c, 1});
  }

  void CallByte(char c) {
    const size_t writes = sink_.writes();
    const Verdict verdict = machine_->Next(c);
    if (verdict == Verdict::kBroken) return Break(c);
    raw_ += c;
    // What has become part of a call is not text any more.
    if (sink_.writes() != writes) raw_.clear();
    if (verdict == Verdict::kMore) return;
    machine_.reset();
    const std::string again = verdict == Verdict::kDoneBefore ? std::string(1, c) : "";
    Fresh(true);
    Again(again);
  }

  // What is left of a block when its last whole call is taken: brackets are no text.
  std::string Remainder() const {
    const size_t at = raw_.find_first_not_of(" \t\r\n,]}");
    return at == std::string::npos ? "" : raw_.substr(at);
  }

  void Break(char c) {
    machine_.reset();
    Again({c});
    if (sink_.open()) {
      sink_.End();
      Fresh(true);
      Again(raw_);
    } else if (sink_.calls() > block_calls_) {
      Fresh(true);
      Again(Remainder());
    } else {
      AsText();
      Again(raw_);
    }
  }

  // The block is none: its marker is text, as if nothing had been there.
  void AsText() {
    std::tie(mode_, space_, fresh_, swallow_, after_call_) = before_;
    for (const char c : marker_) Plain(c);
  }

  void FinishCall() {
    if (sink_.open()) machine_->Flush();
    machine_.reset();
    if (sink_.open()) {
      sink_.End();
      return Fresh(true);
    }
    if (sink_.calls() > block_calls_) {
      Fresh(true);
      raw_ = Remainder();
    } else {
      AsText();
    }
    for (const char c : raw_) Plain(c);
  }

  ToolTable tools_;
  std::vector<Marker> markers_;
  std::array<bool, 256> starts_{};  // bytes that a marker may start with
  Mode mode_ = Mode::kText;
  std::vector<Source> sources_;  // bytes to be read, the last first
  std::string pending_;          // may become a marker
  std::string space_;            // white space that vanishes if a marker follows
  bool trim_;
  bool fresh_ = true;  // nothing but white space since the start or the last marker
  bool swallow_;       // the newlines there are none of the content's
  bool after_call_ = false;
  bool hold_newlines_;
  bool begun_thought_ = false;

  // In a block of calls:
  std::unique_ptr<CallMachine> machine_;
  std::string_view marker_;
  std::string raw_;  // read, and not yet part of a call
  size_t block_calls_ = 0;
  std::tuple<Mode, std::string, bool, bool, bool> before_;
};

}  // namespace

AnswerParser::AnswerParser(AnswerParserOptions options) {
  const auto reader = EntryOf(options.format).reader;
  machine_ = reader != nullptr ? reader(options) : std::make_unique<MarkedText>(options);
}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

std::vector<AnswerDelta> AnswerParser::Add(std::string_view text) {
  machine_->Add(text);
  return machine_->Take();
}

std::vector<AnswerDelta> AnswerParser::Finish() {
  machine_->Finish();
  return machine_->Take();
}

bool AnswerParser::called() const { return machine_->called(); }

}  // namespace larder::serving::answer
