package api

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/invopop/jsonschema"
)

// ChatContent is the text of a message, which may come in parts.
type ChatContent string

// UnmarshalJSON implements json.Unmarshaler: a text, or a list of parts of the type text.
func (c *ChatContent) UnmarshalJSON(raw []byte) error {
	var text *string
	if json.Unmarshal(raw, &text) == nil {
		if text != nil {
			*c = ChatContent(*text)
		}
		return nil
	}

	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return errors.New("the content of a message is a text, or a list of parts")
	}

	texts := make([]string, len(parts))
	for i, p := range parts {
		if p.Type != "text" {
			return errors.New("only text can be sent to an agent, not " + p.Type)
		}
		texts[i] = p.Text
	}
	*c = ChatContent(strings.Join(texts, "\n"))
	return nil
}

// JSONSchema describes what is accepted.
func (ChatContent) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "null"}, {Type: "array", Items: &jsonschema.Schema{Type: "object"}}}}
}
