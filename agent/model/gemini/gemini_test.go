package gemini_test

import (
	"net/http"
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/gemini"
	"rouse/agent/model/modeltest"
)

const key = "AIza-canary-0123456789"

func provider(t testing.TB, url string, l modeltest.Limits) *gemini.Provider {
	t.Helper()
	p, err := gemini.New(gemini.Options{BaseURL: url, Model: "scripted", APIKey: key, Timeout: l.Timeout, Idle: l.Idle})
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
		return gemini.New(gemini.Options{BaseURL: "http://model", Model: "m", Transport: transport})
	}, `[{"candidates":[{"content":{"parts":[{"functionCall":{"name":"x","args":{}}}]},"finishReason":"STOP"}]}]`, `{"promptFeedback":{"blockReason":"SAFETY"}}`)
}
