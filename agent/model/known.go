package model

import "strings"

// Info holds the properties of a model that are known without a request to its server.
type Info struct {
	Window int // size of the context, in tokens
	Price  Price
}

// known maps names of models to list prices in USD per million tokens and context windows, as of
// 2026-11-21. The configuration overrides both. If long prompts cost more, the window ends at the
// length from which the higher price applies.
var known = map[string]Info{
	"gpt-5.4":      {200_000, Price{2.50, 15, 0.25}},
	"gpt-5.4-mini": {400_000, Price{0.75, 4.50, 0.075}},
	"gpt-5.2":      {400_000, Price{1.75, 14, 0.175}},
	"gpt-5.1":      {400_000, Price{1.25, 10, 0.125}},
	"gpt-5":        {400_000, Price{1.25, 10, 0.125}},
	"gpt-5-mini":   {400_000, Price{0.25, 2, 0.025}},
	"gpt-5-nano":   {400_000, Price{0.05, 0.40, 0.005}},
	"gpt-4.1":      {1_047_576, Price{2, 8, 0.50}},
	"gpt-4.1-mini": {1_047_576, Price{0.40, 1.60, 0.10}},
	"gpt-4.1-nano": {1_047_576, Price{0.10, 0.40, 0.025}},
	"gpt-4o":       {128_000, Price{2.50, 10, 1.25}},
	"gpt-4o-mini":  {128_000, Price{0.15, 0.60, 0.075}},
	"o3":           {200_000, Price{2, 8, 0.50}},
	"o3-mini":      {200_000, Price{1.10, 4.40, 0.55}},
	"o4-mini":      {200_000, Price{1.10, 4.40, 0.275}},
	"o1":           {200_000, Price{15, 60, 7.50}},

	"claude-fable-5-1":  {1_000_000, Price{10, 50, 0.25}},
	"claude-fable-5":    {1_000_000, Price{10, 50, 1}},
	"claude-opus-5-5":   {1_000_000, Price{4, 20, 0.20}},
	"claude-opus-5":     {1_000_000, Price{5, 25, 0.50}},
	"claude-opus-4-8":   {200_000, Price{5, 25, 0.50}},
	"claude-opus-4-7":   {200_000, Price{5, 25, 0.50}},
	"claude-opus-4-6":   {200_000, Price{5, 25, 0.50}},
	"claude-sonnet-5-5": {1_000_000, Price{2, 10, 0.20}},
	"claude-sonnet-5":   {1_000_000, Price{2, 10, 0.20}},
	"claude-sonnet-4-6": {200_000, Price{3, 15, 0.30}},
	"claude-haiku-5-5":  {100_000, Price{0.10, 0.50, 0.01}},
	"claude-opus-4-5":   {200_000, Price{5, 25, 0.50}},
	"claude-opus-4-1":   {200_000, Price{15, 75, 1.50}},
	"claude-opus-4":     {200_000, Price{15, 75, 1.50}},
	"claude-sonnet-4-5": {200_000, Price{3, 15, 0.30}},
	"claude-sonnet-4":   {200_000, Price{3, 15, 0.30}},
	"claude-3-7-sonnet": {200_000, Price{3, 15, 0.30}},
	"claude-haiku-4-5":  {200_000, Price{1, 5, 0.10}},
	"claude-3-5-haiku":  {200_000, Price{0.80, 4, 0.08}},
	"claude-3-haiku":    {200_000, Price{0.25, 1.25, 0.03}},

	"gemini-3-pro-preview":  {200_000, Price{2, 12, 0.20}},
	"gemini-3.8-flash":      {1_048_576, Price{1.50, 7.50, 0.15}}, // half of it until the end of 2026
	"gemini-2.5-pro":        {200_000, Price{1.25, 10, 0.125}},
	"gemini-2.5-flash":      {1_048_576, Price{0.30, 2.50, 0.03}},
	"gemini-2.5-flash-lite": {1_048_576, Price{0.10, 0.40, 0.01}},

	"deepseek-chat":     {128_000, Price{0.28, 0.42, 0.028}},
	"deepseek-reasoner": {128_000, Price{0.28, 0.42, 0.028}},
}

// foundationWindow is the context of models that are part of an operating system, in tokens.
const foundationWindow = 4096

// Lookup returns the known properties of a model. It ignores a date or "latest" at the end of the
// name, as in gpt-5-2025-08-07. Any other suffix means another model.
func Lookup(name string) (Info, bool) {
	name = strings.TrimPrefix(strings.ToLower(name), "models/")
	full := name
	for {
		if k, ok := known[name]; ok {
			return k, true
		}

		i := strings.LastIndexByte(name, '-')
		if i < 0 || !isDate(name[i+1:]) && name[i+1:] != "latest" && name[i+1:] != "0" {
			if strings.Contains(full, "foundation") {
				return Info{Window: foundationWindow}, false // the price depends on the server
			}
			return Info{}, false
		}

		name = name[:i]
	}
}

// isDate reports whether a part of a name is a date or a part of a date.
func isDate(text string) bool {
	if len(text) != 2 && len(text) != 4 && len(text) != 8 {
		return false
	}
	return strings.Trim(text, "0123456789") == ""
}
