package control

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/form"
	"rouse/internal/text"
)

//go:embed clarify.md
var clarifyText string

// Limits of a question, in options and characters.
const (
	maxOptions  = 6
	maxOption   = 80
	maxQuestion = 2000
)

type clarifyArgs struct {
	Question      string   `json:"question"`
	Options       []string `json:"options,omitempty" jsonschema:"up to 6 answers to choose from"`
	AllowMultiple bool     `json:"allowMultiple,omitempty"`
	// A map, because JSON Schema has too many keywords for a struct.
	InputSchema map[string]any `json:"inputSchema,omitempty" jsonschema:"JSON Schema of an object, for an answer of several values"`
}

type clarifyResult struct {
	Question      string         `json:"question"`
	Options       []string       `json:"options,omitempty"`
	AllowMultiple bool           `json:"allow_multiple,omitempty"`
	InputSchema   map[string]any `json:"input_schema,omitempty"`
	Waiting       bool           `json:"waiting"`
}

// Clarify returns the tool with which a model asks its owner a question. Playbooks do not get it,
// because they cannot use the answer.
func Clarify() (tool.Tool, error) {
	return tool.Define(clarifySpec, clarify)
}

func clarify(_ context.Context, _ tool.Invocation, a clarifyArgs) (tool.Envelope, error) {
	res := clarifyResult{Question: strings.TrimSpace(a.Question), InputSchema: a.InputSchema, Waiting: true}
	switch n := utf8.RuneCountInString(res.Question); {
	case n == 0:
		return tool.Failure(tool.KindInvalidArgs, "the question is empty").WithField("question", "what you need to know"), nil
	case n > maxQuestion:
		return tool.Failure(tool.KindInvalidArgs, "the question has %d characters", n).WithField("question", fmt.Sprintf("at most %d characters", maxQuestion)), nil
	}

	seen := map[string]bool{}
	for _, o := range a.Options {
		o = text.Collapse(o)
		if o == "" || seen[strings.ToLower(o)] {
			continue
		}

		seen[strings.ToLower(o)] = true
		if n := utf8.RuneCountInString(o); n > maxOption {
			return tool.Failure(tool.KindInvalidArgs, "the option %q has %d characters", text.Truncate(o, 40), n).WithField("options", fmt.Sprintf("at most %d characters each", maxOption)), nil
		}
		res.Options = append(res.Options, o)
	}
	if n := len(res.Options); n > maxOptions {
		return tool.Failure(tool.KindInvalidArgs, "there are %d options", n).WithField("options", fmt.Sprintf("at most %d", maxOptions)), nil
	}

	if len(a.InputSchema) > 0 {
		if len(res.Options) > 0 {
			return tool.Failure(tool.KindInvalidArgs, "give options or inputSchema, not both").WithField("inputSchema", "an enum within the schema has the options"), nil
		}
		if err := checkForm(a.InputSchema); err != nil {
			return tool.Failure(tool.KindInvalidArgs, "nobody can be asked with this schema: %v", err).WithField("inputSchema", "a JSON Schema of an object without $ref"), nil
		}
	}

	res.AllowMultiple = a.AllowMultiple && len(res.Options) > 0
	return tool.Success(res), nil
}

// checkForm returns an error if a form cannot be generated from the schema.
func checkForm(schema map[string]any) error {
	raw, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	_, err = form.Parse(raw)
	return err
}
