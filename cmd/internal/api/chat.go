package api

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/invopop/jsonschema"
)

// AgentRunRequest asks an agent for one thing, and waits for what becomes of it (OSA-28).
type AgentRunRequest struct {
	Prompt string            `json:"prompt"`
	Input  map[string]string `json:"input,omitempty"`
	// Session is the key of a session, any text of up to 200 characters: the run is told what was said in the runs of the same
	// key before it. Fresh has the session begin with this run.
	Session string `json:"session,omitempty"`
	Fresh   bool   `json:"fresh,omitempty"`
	// Wait bounds the wait in seconds; absent: until the run is over or waits for a person. The run goes on after it.
	Wait int `json:"wait,omitempty"`
}

// AgentRun is what became of it: the summary of a run that is over, or the item that it waits for.
type AgentRun struct {
	Run     Run    `json:"run"`
	Summary string `json:"summary"`
	// Item is the question to answer, at POST /v1/inbox/{id}/answer; null: there is none.
	Item *Item `json:"item" jsonschema:"nullable"`
}

// ChatRequest is a request of OpenAI's chat completions, as far as it is read: an agent has its own tools, and its
// model its own settings.
type ChatRequest struct {
	Model         string        `json:"model"` // the name of an agent
	Messages      []ChatMessage `json:"messages"`
	Stream        bool          `json:"stream,omitempty"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage,omitempty"`
	} `json:"stream_options,omitzero"`
	N          int   `json:"n,omitempty"`           // 1 at most
	Tools      []any `json:"tools,omitempty"`       // none
	ToolChoice any   `json:"tool_choice,omitempty"` // not read: there are no tools to choose from
}

// ChatMessage is a message of a conversation.
type ChatMessage struct {
	Role    string      `json:"role"`
	Content ChatContent `json:"content"`
}

// ChatCompletion is an answer of chat completions, or a chunk of one.
type ChatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`  // chat.completion, chat.completion.chunk
	Created int64        `json:"created"` // seconds of Unix time
	Model   string       `json:"model"`
	Choices []ChatChoice `json:"choices"`
	Usage   *ChatUsage   `json:"usage,omitempty"`
}

// ChatChoice is the one choice there is.
type ChatChoice struct {
	Index        int        `json:"index"`
	Message      *ChatReply `json:"message,omitempty"`
	Delta        *ChatReply `json:"delta,omitempty"`
	FinishReason *string    `json:"finish_reason" jsonschema:"nullable"`
}

// ChatReply is what an agent said.
type ChatReply struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// ChatUsage is what the run took.
type ChatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// ChatModels are the agents, as a list of models.
type ChatModels struct {
	Object string      `json:"object"` // list
	Data   []ChatModel `json:"data"`
}

// ChatModel is an agent as a model.
type ChatModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // model
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

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
