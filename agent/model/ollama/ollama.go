package ollama

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
	"rouse/internal/jsonread"
)

// Options are the address and the configuration of a model. BaseURL does not include /v1 or /api.
type Options struct {
	wire.Endpoint
	ContextWindow int // tokens; 0 means the server's default
}

// Provider is one model on one server. It is safe for concurrent use.
type Provider struct {
	client *wire.Client
	window int
}

// New validates the options. It does not connect to the server.
func New(o Options) (*Provider, error) {
	p := &Provider{window: o.ContextWindow}
	var err error
	p.client, err = wire.New(o.Endpoint, wire.Dialect{
		Name: "ollama", BaseURL: "http://127.0.0.1:11434", ExampleURL: "http://127.0.0.1:11434",
		Path: "api/chat", KeyHeader: "Authorization", KeyPrefix: "Bearer ", JSONLines: true, Hint: p.hint,
		Images: wire.ImageLimits{Types: []string{"image/png", "image/jpeg", "image/webp"}, MaxBytes: model.MaxImage, MaxTotal: model.MaxImage},
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Stream implements model.Provider.
func (p *Provider) Stream(ctx context.Context, r model.Request) iter.Seq2[model.Event, error] {
	return p.client.Stream(ctx, &turn{p: p, r: r}, r.MaxOutput)
}

type turn struct {
	p          *Provider
	r          model.Request
	thinking   strings.Builder
	sentImages bool // the last request had images
}

// EncodeRequest implements wire.Exchange.
func (t *turn) EncodeRequest() any { return t.encode() }

// Adapt implements wire.Exchange.
func (t *turn) Adapt(_ int, refusal wire.ServerError) bool {
	return t.p.client.AdaptImages(t.sentImages, refusal)
}

func (p *Provider) hint(kind model.ErrorKind, status int, refusal wire.ServerError) string {
	switch {
	case status == 0:
		return "is Ollama running there? `ollama serve` starts it"
	case status == http.StatusNotFound && strings.Contains(refusal.Message, "model"):
		return "to get it, run `ollama pull " + p.client.Model() + "`"
	case kind == model.KindContextOverflow && p.window == 0:
		return "set context_window to what the model can read and this machine can hold"
	case kind == model.KindContextOverflow:
		return "raise context_window, if the model can read more and this machine can hold it"
	case strings.Contains(refusal.Message, "does not support tools"):
		return "an agent needs a model that can call tools"
	}

	return ""
}

type request struct {
	Model    string         `json:"model"`
	Messages []message      `json:"messages"`
	Tools    []tool         `json:"tools,omitempty"`
	Stream   bool           `json:"stream"`
	Truncate bool           `json:"truncate"` // cut off the beginning of a request that does not fit
	Shift    bool           `json:"shift"`    // drop the beginning while answering
	Options  map[string]any `json:"options,omitempty"`
}

type message struct {
	Role       string   `json:"role"`
	Content    string   `json:"content"`
	Images     [][]byte `json:"images,omitempty"`
	Thinking   string   `json:"thinking,omitempty"`
	ToolCalls  []call   `json:"tool_calls,omitempty"`
	ToolName   string   `json:"tool_name,omitempty"`
	ToolCallID string   `json:"tool_call_id,omitempty"`
}

type call struct {
	ID       string   `json:"id,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Index     int             `json:"index"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

type tool struct {
	Type     string       `json:"type"`
	Function functionSpec `json:"function"`
}

type functionSpec struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

func (t *turn) encode() request {
	// Truncate and Shift are false, but must be sent: the server's defaults are true.
	out := request{Model: t.p.client.Model(), Messages: []message{}, Stream: true, Options: map[string]any{}}
	if t.p.window > 0 {
		out.Options["num_ctx"] = t.p.window
	}
	if t.r.MaxOutput > 0 {
		out.Options["num_predict"] = t.r.MaxOutput
	}
	if t.r.Temperature != nil {
		out.Options["temperature"] = *t.r.Temperature
	}

	if t.r.System != "" {
		out.Messages = append(out.Messages, message{Role: string(model.RoleSystem), Content: t.r.System})
	}
	history, hasImages := t.p.client.FilterImages(t.r.Messages)
	t.sentImages = hasImages
	for _, m := range wire.MoveToolImages(history, hasImages) {
		out.Messages = append(out.Messages, t.toMessage(m))
	}
	if !t.r.NoTools { // the API has no tool_choice
		out.Tools = encodeTools(t.r.Tools)
	}
	return out
}

func encodeTools(tools []model.Tool) (out []tool) {
	for _, t := range tools {
		out = append(out, tool{"function", functionSpec{t.Name, t.Description, t.ArgumentSchema()}})
	}
	return out
}

func (t *turn) toMessage(m model.Message) message {
	out := message{Role: string(m.Role), Content: m.Text, ToolName: m.Name, ToolCallID: m.CallID}
	for _, i := range m.Images {
		out.Images = append(out.Images, i.Data)
	}

	for _, p := range t.p.client.ContentBlocks(m) {
		switch {
		case p.Call != nil:
			args := p.Call.Args
			if len(args) == 0 || args[0] != '{' {
				args = json.RawMessage("{}")
			}
			out.ToolCalls = append(out.ToolCalls, call{p.Call.ID, function{len(out.ToolCalls), p.Call.Name, args}})
		case p.Opaque != nil: // thinking; the content is already in Text
			if json.Unmarshal(p.Opaque, &out.Thinking) != nil {
				out.Thinking = ""
			}
		}
	}

	return out
}

type chunk struct {
	Message struct {
		Content   string `json:"content"`
		Thinking  string `json:"thinking"`
		ToolCalls []struct {
			ID       string `json:"id"`
			Function struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"message"`
	Done   bool            `json:"done"`
	Reason string          `json:"done_reason"`
	Input  wire.TokenCount `json:"prompt_eval_count"`
	Output wire.TokenCount `json:"eval_count"`
	Error  json.RawMessage `json:"error"`
}

// stopReasons translates done_reason. The server sends load and unload without an answer.
var stopReasons = map[string]string{
	"stop": model.StopDone, "length": model.StopLength, "load": wire.StopServerError, "unload": wire.StopServerError, "content_filter": model.StopFilter,
}

// Decode implements wire.Exchange.
func (t *turn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	var c chunk
	err := jsonread.Unmarshal(f.Data, &c)
	switch {
	case len(c.Error) > 0 && string(c.Error) != "null":
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	}

	t.thinking.WriteString(c.Message.Thinking)
	// An empty text is also added. It is merged with the previous text, or is an empty part that is
	// not sent.
	a.AddPart(wire.Part{Text: len(c.Message.Content)})

	for _, made := range c.Message.ToolCalls {
		call := a.StartCall(len(a.Calls), made.ID, made.Function.Name)
		call.Args.Write(made.Function.Arguments)
		a.AddPart(wire.Part{Call: len(a.Calls)})
	}

	if !c.Done {
		return c.Message.Content, nil
	}

	if c.Reason == "" { // missing in older versions
		c.Reason = "stop"
	}

	a.SetFinishReason(c.Reason, stopReasons)
	a.Usage = wire.NewUsage(c.Input, c.Output, 0, 0)
	if t.thinking.Len() > 0 {
		// The thinking is one text. toMessage finds it at any position.
		if raw, err := json.Marshal(t.thinking.String()); err == nil {
			a.Parts = append(a.Parts, wire.Part{Opaque: raw})
		}
	}

	return c.Message.Content, io.EOF
}

// List implements model.Lister. The server does not load the model for it.
func (p *Provider) List(ctx context.Context) (model.Listing, error) {
	l := p.client.Listing()
	var about struct {
		Capabilities []string                   `json:"capabilities"`
		Info         map[string]json.RawMessage `json:"model_info"`
	}
	found, err := p.client.Ask(ctx, "api/show", map[string]string{"model": p.client.Model()}, &about, &l)
	if err != nil {
		return l, err
	}

	if found && about.Info != nil {
		l.Known, l.Has, l.NoTool = true, true, about.Capabilities != nil && !slices.Contains(about.Capabilities, "tools")
		for key, value := range about.Info {
			if strings.HasSuffix(key, ".context_length") { // the prefix is the architecture
				_ = json.Unmarshal(value, &l.Window) // stays 0 if the value is not a number
			}
		}
		return l, nil
	}

	return l, p.client.AskNames(ctx, "api/tags", &l)
}
