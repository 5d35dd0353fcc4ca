// Which rules each family's pre-tokenizer has. The expressions are the publishers'; where a rule
// stands for one that is not obvious, the expression is beside it.
#include "model/pretokenizer/split_rules.h"

namespace larder::model::inline pretokenizer {
namespace {

using enum Kind;

constexpr uint32_t kMany = std::numeric_limits<uint32_t>::max();

// What rules are written with.
constexpr Element Count(CharacterClass of, uint32_t min, uint32_t max) {
  return {.type = Element::Type::kRun, .of = of, .min = min, .max = max};
}
constexpr Element One(CharacterClass of) { return Count(of, 1, 1); }
constexpr Element Perhaps(CharacterClass of) { return Count(of, 0, 1); }
constexpr Element Some(CharacterClass of) { return Count(of, 1, kMany); }
constexpr Element Any(CharacterClass of) { return Count(of, 0, kMany); }
constexpr Element Text(std::string_view text) {
  return {.type = Element::Type::kText, .text = text};
}
constexpr Element kContraction = {.type = Element::Type::kContraction};
constexpr Element kContractionOfAnyCase = {.type = Element::Type::kContraction, .any_case = true};
constexpr Element kPerhapsContraction = {
    .type = Element::Type::kContraction, .optional = true, .any_case = true};
constexpr Element kNoMoreText = {.type = Element::Type::kNoMoreText};
constexpr Element kSpacedWords = {.type = Element::Type::kSpacedWords};

constexpr CharacterClass Kinds(uint32_t kinds) { return {.kinds = kinds}; }
constexpr CharacterClass But(uint32_t kinds) { return {.kinds = kAnyKind & ~kinds}; }

constexpr uint32_t kLineBreaks = Bit(kReturn) | Bit(kNewline);
constexpr uint32_t kAsciiLetters = Bit(kAsciiUpper) | Bit(kAsciiLower);
constexpr uint32_t kAsciiMarks = Bit(kSlash) | Bit(kUnderscore) | Bit(kAsciiPunctuation) |
                                 Bit(kAsciiSymbol) | Bit(kBacktick);  // ! to ~ less letters, digits
constexpr uint32_t kPunctuations =
    Bit(kSlash) | Bit(kUnderscore) | Bit(kAsciiPunctuation) | Bit(kConnector) | Bit(kPunctuation);
constexpr uint32_t kSymbols =
    Bit(kAsciiSymbol) | Bit(kBacktick) | Bit(kAlphabeticSymbol) | Bit(kSymbol);
// Letters and marks that may be of an upper case word's beginning, and of its end.
constexpr uint32_t kUncased = Bit(kModifierLetter) | Bit(kOtherLetter) | kMarks;
constexpr uint32_t kHigh = Bit(kAsciiUpper) | Bit(kUpper) | Bit(kTitle) | kUncased;
constexpr uint32_t kLow = Bit(kAsciiLower) | Bit(kLower) | kUncased;

constexpr CharacterClass kBlankClass = Kinds(Bit(kBlank));
constexpr CharacterClass kBeforeWord = But(kLineBreaks | kLetters | kNumbers);
constexpr CharacterClass kRest = But(kSpaces | kLetters | kNumbers);

// Rules that families have in common.
constexpr Rule kWord(Perhaps(kBeforeWord), Some(Kinds(kLetters)));
constexpr Rule kNumber(One(Kinds(kNumbers)));
constexpr Rule kThreeNumbers(Count(Kinds(kNumbers), 1, 3));
constexpr Rule kRestAndBreaks(Perhaps(kBlankClass), Some(kRest), Any(Kinds(kLineBreaks)));
constexpr Rule kRestAndBreaksOrSlashes(Perhaps(kBlankClass), Some(kRest),
                                       Any(Kinds(kLineBreaks | Bit(kSlash))));
constexpr Rule kSpaceToNewline(Element{.type = Element::Type::kSpaceToNewline});
constexpr Rule kSpaceBeforeWord(Some(Kinds(kSpaces)), kNoMoreText);  // \s+(?!\S)
constexpr Rule kSpace(Some(Kinds(kSpaces)));

constexpr Rule kEachNumberRules[] = {kNumber};
constexpr Stage kEachNumber(kEachNumberRules);
constexpr Rule kThreeNumbersRules[] = {kThreeNumbers};
constexpr Stage kThreeNumbersEach(kThreeNumbersRules);

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
constexpr Rule kGpt2Rules[] = {Rule(kContraction),
                               Rule(Perhaps(kBlankClass), Some(Kinds(kLetters))),
                               Rule(Perhaps(kBlankClass), Some(Kinds(kNumbers))),
                               Rule(Perhaps(kBlankClass), Some(kRest)),
                               kSpaceBeforeWord,
                               kSpace};
constexpr Stage kGpt2[] = {Stage(kGpt2Rules)};
constexpr Stage kEachNumberThenGpt2[] = {kEachNumber, Stage(kGpt2Rules)};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+
constexpr Rule kLlama3Rules[] = {Rule(kContractionOfAnyCase),
                                 kWord,
                                 kThreeNumbers,
                                 kRestAndBreaks,
                                 kSpaceToNewline,
                                 kSpaceBeforeWord,
                                 kSpace};
constexpr Stage kLlama3[] = {Stage(kLlama3Rules)};

constexpr Rule kQwen2Rules[] = {Rule(kContractionOfAnyCase),
                                kWord,
                                kNumber,
                                kRestAndBreaks,
                                kSpaceToNewline,
                                kSpaceBeforeWord,
                                kSpace};
constexpr Stage kQwen2[] = {Stage(kQwen2Rules)};

// Words with their marks: [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+ and ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*
constexpr Rule kQwen35Rules[] = {
    Rule(kContractionOfAnyCase),
    Rule(Perhaps(kBeforeWord), Some(Kinds(kLetters | kMarks))),
    kNumber,
    Rule(Perhaps(kBlankClass), Some(But(kSpaces | kLetters | kMarks | kNumbers)),
         Any(Kinds(kLineBreaks))),
    kSpaceToNewline,
    kSpaceBeforeWord,
    kSpace};
constexpr Stage kQwen35[] = {Stage(kQwen35Rules)};

constexpr Rule kUfakzekaRules[] = {kWord,           kNumber,          kRestAndBreaks,
                                   kSpaceToNewline, kSpaceBeforeWord, kSpace};
constexpr Stage kUfakzeka[] = {Stage(kUfakzekaRules)};

constexpr Rule kSeedCoderRules[] = {Rule(kContractionOfAnyCase),
                                    kWord,
                                    kNumber,
                                    Rule(Perhaps(kBlankClass), Some(kRest)),
                                    kSpaceToNewline,
                                    kSpaceBeforeWord,
                                    kSpace};
constexpr Stage kSeedCoder[] = {Stage(kSeedCoderRules)};

constexpr Rule kLineRules[] = {Rule(Some(But(Bit(kNewline)))), Rule(Some(Kinds(Bit(kNewline))))};
constexpr Stage kLaguna[] = {Stage(kLineRules), Stage(kQwen2Rules)};

constexpr Rule kMiniCpm5Rules[] = {Rule(kContractionOfAnyCase),
                                   kWord,
                                   Rule(Some(Kinds(kNumbers))),
                                   kRestAndBreaks,
                                   kSpaceToNewline,
                                   kSpaceBeforeWord,
                                   kSpace};
constexpr Stage kMiniCpm5[] = {kThreeNumbersEach, Stage(kMiniCpm5Rules)};

// Words that run over single spaces, ...(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+
constexpr Rule kExaoneMoeRules[] = {
    Rule(kContractionOfAnyCase),
    Rule(Perhaps(kBeforeWord), kSpacedWords),
    kNumber,
    Rule(Perhaps(kBlankClass), Some(kRest), Perhaps(Kinds(kLineBreaks | Bit(kSlash)))),
    kSpaceToNewline,
    kSpaceBeforeWord,
    kSpace};
constexpr Stage kExaoneMoe[] = {Stage(kExaoneMoeRules)};

// Long white space in pieces of powers of two: \s{512}(?!\S)|...|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}
constexpr Rule Spaces(uint32_t min, uint32_t max) {
  return Rule(Count(Kinds(kSpaces), min, max), kNoMoreText);
}
constexpr Rule kJais2Rules[] = {Rule(kContractionOfAnyCase),
                                kWord,
                                kThreeNumbers,
                                kRestAndBreaks,
                                kSpaceToNewline,
                                Spaces(512, 512),
                                Spaces(256, 256),
                                Spaces(128, 128),
                                Spaces(64, 64),
                                Spaces(32, 32),
                                Spaces(16, 16),
                                Spaces(8, 8),
                                Spaces(4, 4),
                                Spaces(1, 2),
                                Rule(One(Kinds(kSpaces)))};
constexpr Stage kJais2[] = {Stage(kJais2Rules)};

// Words by case: [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+ and
// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*, each with
// (?i:'s|'t|'re|'ve|'m|'ll|'d)? except for tekken
constexpr Rule kLowWord(Perhaps(kBeforeWord), Any(Kinds(kHigh)), Some(Kinds(kLow)),
                        kPerhapsContraction);
constexpr Rule kHighWord(Perhaps(kBeforeWord), Some(Kinds(kHigh)), Any(Kinds(kLow)),
                         kPerhapsContraction);
constexpr Rule kGpt4oRules[] = {
    kLowWord,        kHighWord,        kThreeNumbers, kRestAndBreaksOrSlashes,
    kSpaceToNewline, kSpaceBeforeWord, kSpace};
constexpr Stage kGpt4o[] = {Stage(kGpt4oRules)};
constexpr Stage kTinyAya[] = {Stage(Stage::Type::kDigitsOfWords, Kinds(kDigits)),
                              Stage(kGpt4oRules)};

constexpr Rule kTekkenRules[] = {Rule(Perhaps(kBeforeWord), Any(Kinds(kHigh)), Some(Kinds(kLow))),
                                 Rule(Perhaps(kBeforeWord), Some(Kinds(kHigh)), Any(Kinds(kLow))),
                                 kNumber,
                                 kRestAndBreaksOrSlashes,
                                 kSpaceToNewline,
                                 kSpaceBeforeWord,
                                 kSpace};
constexpr Stage kTekken[] = {Stage(kTekkenRules)};

constexpr CodeRange kHan[] = {
    {0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
    {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
    {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
    {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
    {0x30000, 0x3134A}, {0x31350, 0x323AF}};  // script Han of Unicode 16
constexpr CharacterClass kHighNotHan = {.kinds = kHigh, .ranges = kHan, .without = true};
constexpr CharacterClass kLowNotHan = {.kinds = kLow, .ranges = kHan, .without = true};
constexpr Rule kKimiRules[] = {
    Rule(Some({.ranges = kHan})),
    Rule(Perhaps(kBeforeWord), Any(kHighNotHan), Some(kLowNotHan), kPerhapsContraction),
    Rule(Perhaps(kBeforeWord), Some(kHighNotHan), Any(kLowNotHan), kPerhapsContraction),
    kThreeNumbers,
    kRestAndBreaks,
    kSpaceToNewline,
    kSpaceBeforeWord,
    kSpace};
constexpr Stage kKimi[] = {Stage(kKimiRules)};

constexpr CodeRange kHangul[] = {{0x3131, 0x318E}, {0xAC00, 0xD7A3}};
constexpr CodeRange kCjkPunctuation[] = {{0x2014, 0x2014}, {0x2018, 0x2019}, {0x201C, 0x201D},
                                         {0x2026, 0x2026}, {0x3001, 0x303F}, {0xFE30, 0xFE4F},
                                         {0xFF01, 0xFF01}, {0xFF0C, 0xFF0C}, {0xFF1A, 0xFF1B}};
constexpr CodeRange kBopomofo[] = {{0x3105, 0x312F}};
constexpr CodeRange kHanAndKana[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};
constexpr Rule kYoutuScripts[] = {
    Rule(Some({.ranges = kHangul})), Rule(Some({.ranges = kCjkPunctuation})),
    Rule(Some({.ranges = kBopomofo})), Rule(Some({.ranges = kHanAndKana}))};
constexpr Rule kYoutuRules[] = {kLowWord,        kHighWord,        kNumber, kRestAndBreaksOrSlashes,
                                kSpaceToNewline, kSpaceBeforeWord, kSpace};
constexpr Stage kYoutu[] = {Stage(kYoutuScripts), Stage(kYoutuRules)};

// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
// ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
constexpr Rule kMarkAndLatin(One(Kinds(kAsciiMarks)), Some(Kinds(kAsciiLetters)));
constexpr Rule kWordWithMarks(Perhaps(But(kLineBreaks | kLetters | kPunctuations | kSymbols)),
                              Some(Kinds(kLetters | kMarks)));
constexpr Element kSomePunctuation = Some(Kinds(kPunctuations | kSymbols));
constexpr Rule kDeepSeek3Rules[] = {
    kMarkAndLatin,
    kWordWithMarks,
    Rule(Perhaps(kBlankClass), kSomePunctuation, Any(Kinds(kLineBreaks))),
    kSpaceToNewline,
    kSpaceBeforeWord,
    kSpace};
constexpr Rule kHanAndKanaRules[] = {Rule(Some({.ranges = kHanAndKana}))};
constexpr Stage kDeepSeek3[] = {kThreeNumbersEach, Stage(kHanAndKanaRules), Stage(kDeepSeek3Rules)};

constexpr Rule kSparkRules[] = {kMarkAndLatin,
                                kWordWithMarks,
                                Rule(Perhaps(kBlankClass), kSomePunctuation),
                                Rule(One(Kinds(kLineBreaks))),
                                kSpaceBeforeWord,
                                kSpace};
constexpr Stage kSpark[] = {kThreeNumbersEach, Stage(kHanAndKanaRules), Stage(kSparkRules),
                            kEachNumber};

constexpr CodeRange kAsianScripts[] = {
    {0xE40, 0xEFF},   {0x1000, 0x109F}, {0x1100, 0x11FF}, {0x1780, 0x17FF}, {0x2F00, 0x2FDF},
    {0x3040, 0x30FF}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F},
    {0xAC00, 0xD7AF}, {0xF900, 0xFAFF}, {0xFF65, 0xFF9F}};
constexpr Rule kAsianRules[] = {Rule(Some({.ranges = kAsianScripts}))};
constexpr Stage kAfmoe[] = {Stage(Stage::Type::kDigitGroups, Kinds(kNumbers)), Stage(kAsianRules),
                            Stage(kDeepSeek3Rules)};

constexpr Rule kLineBreakRules[] = {Rule(One(Kinds(kLineBreaks)))};
constexpr CodeRange kEastAsian[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr Rule kEastAsianRules[] = {Rule(Some({.ranges = kEastAsian}))};
constexpr Rule kSpaceAndLetters[] = {Rule(Perhaps(Kinds(kSpaces)), Some(Kinds(kLetters)))};
constexpr Rule kSpaceAndPunctuation[] = {Rule(Perhaps(Kinds(kSpaces)), Some(Kinds(kPunctuations)))};
constexpr Stage kDeepSeekCoder[] = {Stage(kLineBreakRules), Stage(kSpaceAndLetters),
                                    Stage(kSpaceAndPunctuation), Stage(kEastAsianRules),
                                    kEachNumber};

constexpr CodeRange kCasedLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x376},     {0x377, 0x377},
    {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},
    {0x48A, 0x52F},     {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},
    {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},
    {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},
    {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC},   {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},
    {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},
    {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},
    {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},
    {0x213C, 0x213F},   {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2183},
    {0x2184, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},
    {0x2CF2, 0x2CF2},   {0x2CF3, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},
    {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},
    {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2},
    {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943}};
constexpr CodeRange kMarksOfDeepSeek[] = {{0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
                                          {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
constexpr Rule kSpaceAndCased[] = {Rule(Perhaps(Kinds(kSpaces)), Some({.ranges = kCasedLetters}))};
constexpr Rule kSpaceAndMarks[] = {
    Rule(Perhaps(Kinds(kSpaces)), Some({.ranges = kMarksOfDeepSeek}))};
constexpr Rule kNumberRules[] = {Rule(Some(Kinds(kNumbers)))};
constexpr Stage kDeepSeekLlm[] = {Stage(kLineBreakRules), Stage(kSpaceAndCased),
                                  Stage(kSpaceAndMarks),  Stage(Stage::Type::kSpaceAtEnd),
                                  Stage(kEastAsianRules), Stage(kNumberRules)};

// Punctuation first; digits of ASCII last, three from the left.
constexpr Rule kPunctuationRules[] = {Rule(Some(Kinds(kPunctuations | kAsciiMarks)))};
constexpr Rule kThreeDigitRules[] = {Rule(Count(Kinds(Bit(kAsciiDigit)), 3, 3))};
constexpr Stage kFalcon[] = {Stage(kPunctuationRules), Stage(kGpt2Rules), Stage(kThreeDigitRules)};
constexpr Rule kDefaultPunctuation[] = {
    Rule(Some(Kinds((kPunctuations | kAsciiMarks) & ~Bit(kBacktick))))};
constexpr Stage kDefault[] = {Stage(kDefaultPunctuation), Stage(kGpt2Rules), Stage(kNumberRules),
                              Stage(kThreeDigitRules)};

// Between marks of sentences:  ?[^(\s|[.,!?…。，、।۔،])]+
constexpr CodeRange kSentenceMarks[] = {{'!', '!'},       {'(', ')'},       {',', ','},
                                        {'.', '.'},       {'?', '?'},       {'|', '|'},
                                        {0x60C, 0x60C},   {0x6D4, 0x6D4},   {0x964, 0x964},
                                        {0x2026, 0x2026}, {0x3001, 0x3002}, {0xFF0C, 0xFF0C}};
constexpr Rule kBloomRules[] = {
    Rule(Perhaps(kBlankClass),
         Some({.kinds = kAnyKind & ~kSpaces, .ranges = kSentenceMarks, .without = true}))};
constexpr Stage kBloom[] = {Stage(kBloomRules)};
constexpr Stage kViking[] = {Stage(kBloomRules), kEachNumber};

constexpr CodeRange kImageLetters[] = {{'A', 'I'}};
constexpr Rule kSentinelRules[] = {
    Rule(Text("<sentinel:"), Some(Kinds(Bit(kAsciiDigit))), Text(">"))};
constexpr Rule kImageRules[] = {
    Rule(Text("IMGIMG"), Count({.ranges = kImageLetters}, 1, 4), Text("Z"))};
constexpr Rule kIndentRules[] = {Rule(One(Kinds(Bit(kTab) | Bit(kNewline)))), Rule(Text("    ")),
                                 Rule(Text("  "))};
constexpr Rule kEachMarkRules[] = {Rule(One(Kinds(kPunctuations | kAsciiMarks)))};
constexpr Stage kChameleon[] = {Stage(kSentinelRules), Stage(kImageRules),    Stage(kIndentRules),
                                kEachNumber,           Stage(kEachMarkRules), Stage(kGpt2Rules)};

// Words of several words: only numbers are cut, as 1 234 567.
constexpr Stage kSuperBpe[] = {Stage(kNumberRules),
                               Stage(Stage::Type::kCutInDigits, Kinds(kDigits))};

constexpr Family kFamilies[] = {
    {"default", kDefault},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"jina-v5-nano", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3},
    {"jais-2", kJais2},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"kormo", kQwen2},
    {"f2llmv2", kQwen2},
    {"megrez", kQwen2},
    {"stablelm2", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"bailingmoe", kQwen2},
    {"bailingmoe2", kQwen2},
    {"llada-moe", kQwen2},
    {"qwen35", kQwen35},
    {"seed-coder", kSeedCoder},
    {"ufakzeka", kUfakzeka},
    {"laguna", kLaguna},
    {"minicpm5", kMiniCpm5, true},
    {"exaone-moe", kExaoneMoe},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"mellum", kGpt2},
    {"modern-bert", kGpt2},
    {"exaone4", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"smollm", kEachNumberThenGpt2},
    {"starcoder", kEachNumberThenGpt2},
    {"refact", kEachNumberThenGpt2},
    {"command-r", kEachNumberThenGpt2},
    {"codeshell", kEachNumberThenGpt2},
    {"exaone", kEachNumberThenGpt2},
    {"minerva-7b", kEachNumberThenGpt2},
    {"mellum2", kEachNumberThenGpt2},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"talkie", kGpt4o},
    {"granite-embed-multi-97m", kGpt4o, true},
    {"tekken", kTekken, true, true},
    {"tiny_aya", kTinyAya},
    {"cohere2moe", kTinyAya},
    {"kimi-k2", kKimi},
    {"youtu", kYoutu, true},
    {"deepseek-llm", kDeepSeekLlm},
    {"deepseek-coder", kDeepSeekCoder},
    {"deepseek-v3", kDeepSeek3},
    {"hunyuan-dense", kDeepSeek3},
    {"joyai-llm", kDeepSeek3},
    {"hy_v4", kDeepSeek3},
    {"spark2_5", kSpark},
    {"afmoe", kAfmoe},
    {"falcon", kFalcon},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"chameleon", kChameleon, false, true},
    {"superbpe", kSuperBpe},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

}  // namespace larder::model::pretokenizer
