package model_test

import (
	"testing"

	"rouse/agent/model"
)

// TestLookup checks the windows and prices of known models.
func TestLookup(t *testing.T) {
	if k, ok := model.Lookup("apple-foundation-1"); ok || k.Window != 4096 {
		t.Errorf("%+v %v", k, ok)
	}
	for name, want := range map[string]string{
		"gpt-5-mini": "gpt-5-mini", "gpt-5-2025-08-07": "gpt-5", "gpt-5-mini-2025-08-07": "gpt-5-mini", "GPT-4o": "gpt-4o",
		"claude-sonnet-4-5-20250929": "claude-sonnet-4-5", "claude-3-5-haiku-latest": "claude-3-5-haiku", "claude-sonnet-4-0": "claude-sonnet-4",
		"claude-opus-4-20250514": "claude-opus-4", "models/gemini-2.5-flash": "gemini-2.5-flash",
		"gpt-5-pro": "", "gpt-5.9": "", "o1-pro": "", "claude-opus-5-6": "", "claude-sonnet-5": "claude-sonnet-5", "gemini-2.5-flash-image": "", "qwen3:8b": "", "": "", "latest": "", "gpt-6": "",
	} {
		got, ok := model.Lookup(name)
		if ok != (want != "") {
			t.Errorf("%q is known: %v", name, ok)
		}
		if expected, _ := model.Lookup(want); got != expected || ok && (got.Window < 100_000 || got.Price.Free() || got.Price.Cached > got.Price.Input) {
			t.Errorf("%q: %+v", name, got)
		}
	}
}
