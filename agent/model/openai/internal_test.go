package openai

import (
	"testing"

	"rouse/agent/model"
)

// TestOutputLimitByAddress checks that max_completion_tokens is used only for hosts known to
// require it.
func TestOutputLimitByAddress(t *testing.T) {
	for url, want := range map[string]bool{"": true, "https://team.openai.azure.com/openai/v1": true, "http://127.0.0.1:8080/v1": false, "https://openrouter.ai/api/v1": false} {
		p, err := New(Options{Model: "m", BaseURL: url})
		if err != nil {
			t.Fatal(err)
		}
		if r := p.encode(model.Request{MaxOutput: 7}, nil); (r.MaxCompletionTokens == 7) != want || (r.MaxTokens == 7) == want {
			t.Errorf("%q: %+v", url, r)
		}
	}
}
