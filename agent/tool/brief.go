package tool

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"rouse/agent/model"
)

// sentenceEnd matches the end of a sentence, but not a full stop within a word.
var sentenceEnd = regexp.MustCompile(`[.:]\s`)

// BriefForModel returns the tool for a model with a small context: one sentence, and a schema that
// describes only the required arguments. Calls are checked by the whole schema.
func (t Tool) BriefForModel() model.Tool {
	return model.Tool{Name: t.Name(), Description: cmp.Or(t.spec.Brief, t.spec.FirstSentence()), Schema: briefSchema(t.told)}
}

// FirstSentence is the beginning of the description, which says what the tool is for.
func (s Spec) FirstSentence() string {
	text := strings.Join(strings.Fields(s.Description), " ") + " "
	if end := sentenceEnd.FindStringIndex(text); end != nil {
		text = text[:end[0]] + "."
	}
	return strings.TrimSpace(text)
}

// briefSchema leaves out the descriptions of optional arguments.
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
