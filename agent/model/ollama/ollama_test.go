package ollama_test

import (
	"net/http"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/ollama"
	"rouse/agent/model/wire"
)

const key = "canary-0123456789"

func provider(t testing.TB, url string, l modeltest.Limits) *ollama.Provider {
	t.Helper()
	p, err := ollama.New(ollama.Options{Endpoint: wire.Endpoint{BaseURL: url, Model: "scripted", APIKey: key, Timeout: l.Timeout, Idle: l.Idle}})
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
		return ollama.New(ollama.Options{Endpoint: wire.Endpoint{BaseURL: "http://model", Model: "m", Transport: transport}})
	}, `{"message":{"tool_calls":[{"function":{"name":"x","arguments":{}}}]},"done":true}`, `{"error":"x"}`)
}
