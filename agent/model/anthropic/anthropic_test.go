package anthropic_test

import (
	"net/http"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/modeltest"
)

const key = "sk-ant-canary-0123456789"

func provider(t testing.TB, url string, l modeltest.Limits) *anthropic.Provider {
	t.Helper()
	p, err := anthropic.New(anthropic.Options{BaseURL: url, Model: "scripted", APIKey: key, Timeout: l.Timeout, Idle: l.Idle})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestConformance(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, s modeltest.Script, l modeltest.Limits) model.Provider {
		return provider(t, modeltest.New(t, s...).URL, l)
	})
}

func FuzzStream(f *testing.F) {
	modeltest.Fuzz(f, func(transport http.RoundTripper) (model.Provider, error) {
		return anthropic.New(anthropic.Options{BaseURL: "http://model", Model: "m", Transport: transport})
	}, `{"type":"message","content":[{"type":"tool_use","name":"x","input":{"a":1}}],"stop_reason":"tool_use"}`, "event: error\ndata: {}\n\n")
}
