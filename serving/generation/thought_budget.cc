#include "serving/generation/thought_budget.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace larder::serving::inline generation {
namespace {

// A character that is not whole yet is not cut by what is written.
bool EndsInsideCharacter(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if (byte < 0x80) return false;
    if (byte >= 0xc0) return back < (byte >= 0xf0 ? 4u : byte >= 0xe0 ? 3u : 2u);
  }
  return false;
}

// The model has begun to write one of these itself, in several tokens.
bool EndsInside(std::string_view text, const std::vector<std::string>& ends) {
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
    for (size_t size = std::min(end.size(), text.size()); size > 0; --size) {
      if (text.ends_with(end.substr(0, size))) return true;
    }
    return false;
  });
}

}  // namespace

ThoughtBudget::ThoughtBudget(ThoughtLimit limit, const model::Tokenizer& tokenizer)
    : limit_(std::move(limit)), tokenizer_(tokenizer) {
  if (limit_.tokens < 0 || limit_.closing.empty()) {
    state_ = State::kDone;
  } else if (limit_.open) {
    Open();
  }
}

void ThoughtBudget::Open() {
  text_.clear();
  state_ = limit_.tokens == 0 ? State::kClosing : State::kOpen;
}

std::optional<TokenId> ThoughtBudget::Next() const {
  if (state_ != State::kClosing) return std::nullopt;
  return limit_.closing[closed_];
}

void ThoughtBudget::Accept(TokenId token) {
  switch (state_) {
    case State::kDone:
      return;
    case State::kClosing:
      if (token != limit_.closing[closed_] || ++closed_ == limit_.closing.size())
        state_ = State::kDone;
      return;
    case State::kBefore: {
      text_ += tokenizer_.Piece(token, true);
      text_.erase(0, std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
      bool may_be = false;
      for (const std::string& begin : limit_.begin) {
        if (text_.starts_with(begin)) return Open();
        may_be = may_be || begin.starts_with(text_);
      }
      if (!may_be) state_ = State::kDone;
      return;
    }
    case State::kOpen: {
      text_ += tokenizer_.Piece(token, true);
      size_t longest = 4;
      for (const std::string& end : limit_.end) {
        if (text_.find(end) != std::string::npos) {
          state_ = State::kDone;
          return;
        }
        longest = std::max(longest, end.size());
      }
      if (text_.size() > longest) text_.erase(0, text_.size() - longest);
      if (++spent_ >= limit_.tokens && !EndsInsideCharacter(text_) &&
          !EndsInside(text_, limit_.end))
        state_ = State::kClosing;
      return;
    }
  }
}

}  // namespace larder::serving::generation
