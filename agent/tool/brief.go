package tool

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/model"
)

// sentenceEnd is where the first sentence of a description ends. A full stop within a word, as of a file's
// ending, is none.
var sentenceEnd = regexp.MustCompile(`[.:]\s`)

// BriefForModel is the tool as a model with a small context is told of it: one sentence, and a schema that
// describes the arguments that are required. Calls are checked by the whole schema all the same.
func (t Tool) BriefForModel() model.Tool {
	text := t.spec.Brief
	if text == "" {
		text = t.spec.FirstSentence()
	}

	return model.Tool{Name: t.Name(), Description: text, Schema: briefSchema(t.told)}
}

// FirstSentence is the beginning of the description, which says what the tool is for.
func (s Spec) FirstSentence() string {
	text := strings.Join(strings.Fields(s.Description), " ") + " "
	if end := sentenceEnd.FindStringIndex(text); end != nil {
		text = text[:end[0]] + "."
	}
	return strings.TrimSpace(text)
}

// briefSchema leaves out the descriptions of what need not be given. A schema that is not an object, which
// Define does not make, stays as it is.
func briefSchema(raw json.RawMessage) json.RawMessage {
	var s map[string]any
	if json.Unmarshal(raw, &s) != nil {
		return raw
	}

	required, _ := s["required"].([]any)
	properties, _ := s["properties"].(map[string]any)
	for name, p := range properties {
		dropDescriptions(p, slices.Contains(required, any(name)))
	}

	out, err := json.Marshal(s)
	if err != nil {
		return raw
	}
	return out
}

// dropDescriptions leaves the descriptions out of a schema and of all within it; keep spares its own.
func dropDescriptions(schema any, keep bool) {
	s, ok := schema.(map[string]any)
	if !ok {
		return
	}

	if !keep {
		delete(s, "description")
	}

	// What is called description within properties is an argument of that name.
	properties, _ := s["properties"].(map[string]any)
	for _, p := range properties {
		dropDescriptions(p, false)
	}
	dropDescriptions(s["items"], false)
}
