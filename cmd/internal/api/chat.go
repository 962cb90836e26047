package api

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/invopop/jsonschema"
)

// AgentRunRequest asks an agent to run a prompt and waits for the result.
type AgentRunRequest struct {
	Prompt string            `json:"prompt"`
	Input  map[string]string `json:"input,omitempty"`
	// Session is a session key, any text of up to 200 characters. The run sees the conversation of
	// earlier runs with the same key. Fresh starts the session anew.
	Session string `json:"session,omitempty"`
	Fresh   bool   `json:"fresh,omitempty"`
	// Wait is the maximum wait in seconds. Zero means until the run ends or waits for a person. The
	// run continues after the wait.
	Wait int `json:"wait,omitempty"`
}

// AgentRun is the result of an AgentRunRequest: the summary of a finished run, or the item the run
// waits for.
type AgentRun struct {
	Run     Run    `json:"run"`
	Summary string `json:"summary"`
	// Item is the question to answer with POST /v1/inbox/{id}/answer, or null.
	Item *Item `json:"item" jsonschema:"nullable"`
}

// ChatRequest is a request of OpenAI's chat completions API. Other fields are ignored, because
// agents have their own tools and model settings.
type ChatRequest struct {
	Model         string        `json:"model"` // name of an agent
	Messages      []ChatMessage `json:"messages"`
	Stream        bool          `json:"stream,omitempty"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage,omitempty"`
	} `json:"stream_options,omitzero"`
	N          int   `json:"n,omitempty"`           // at most 1
	Tools      []any `json:"tools,omitempty"`       // must be empty
	ToolChoice any   `json:"tool_choice,omitempty"` // ignored: there are no tools to choose from
}

// ChatMessage is a message of a conversation.
type ChatMessage struct {
	Role    string      `json:"role"`
	Content ChatContent `json:"content"`
}

// ChatCompletion is a response of chat completions, or a chunk of one.
type ChatCompletion struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`  // chat.completion or chat.completion.chunk
	Created int64        `json:"created"` // Unix time in seconds
	Model   string       `json:"model"`
	Choices []ChatChoice `json:"choices"`
	Usage   *ChatUsage   `json:"usage,omitempty"`
}

// ChatChoice is the only choice of a completion.
type ChatChoice struct {
	Index        int        `json:"index"`
	Message      *ChatReply `json:"message,omitempty"`
	Delta        *ChatReply `json:"delta,omitempty"`
	FinishReason *string    `json:"finish_reason" jsonschema:"nullable"`
}

// ChatReply is an agent's message.
type ChatReply struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// ChatUsage holds the tokens used by the run.
type ChatUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	TotalTokens      int64 `json:"total_tokens"`
}

// ChatModels lists the agents as models.
type ChatModels struct {
	Object string      `json:"object"` // always "list"
	Data   []ChatModel `json:"data"`
}

// ChatModel describes an agent as a model.
type ChatModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // always "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// ChatContent is the text of a message. In JSON, it can be split into parts.
type ChatContent string

// UnmarshalJSON implements json.Unmarshaler. It accepts a string or a list of parts of type text.
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

// JSONSchema returns the schema of the accepted values.
func (ChatContent) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "null"}, {Type: "array", Items: &jsonschema.Schema{Type: "object"}}}}
}
