package agent_test

import (
	"testing"

	"rouse/agent/model"
	"rouse/agent/model/anthropic"
	"rouse/agent/model/gemini"
	"rouse/agent/model/modeltest"
	"rouse/agent/model/ollama"
	"rouse/agent/model/openai"
)

// dialects are the ways to speak to a model.
func dialects() []string {
	return []string{"openai", "openai responses", "anthropic", "gemini", "ollama"}
}

// piped is a bench whose model speaks so, and is reached in memory: time may be virtual.
func piped(t *testing.T, dialect string, turns ...modeltest.Turn) *bench {
	t.Helper()
	s, way := modeltest.Pipe(t, turns...)
	e := openai.Options{BaseURL: s.URL, Model: "scripted", APIKey: "sk-canary", Transport: way}
	var p model.Provider
	var err error
	switch dialect {
	case "openai":
		e.BaseURL += "/v1"
		p, err = openai.New(e)
	case "openai responses":
		e.BaseURL += "/v1"
		p, err = openai.NewResponses(e)
	case "anthropic":
		p, err = anthropic.New(e)
	case "gemini":
		p, err = gemini.New(e)
	case "ollama":
		p, err = ollama.New(ollama.Options{Endpoint: e})
	}
	if err != nil {
		t.Fatal(err)
	}
	return furnish(t, s, p)
}
