package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// bareChat is a conversation as most programs have it: a request that is encoded as a whole
// with each step, and chunks that are decoded into a type.
type bareChat interface {
	// take reads a chunk.
	decode(data []byte) error
	// made is the call of the answer, with its arguments; "" when there was none.
	made() (id, args string)
	// add appends the call and its result.
	add(result string)
}

// bareLoop is the baseline: net/http and encoding/json, and nothing beside them.
func bareLoop(ctx context.Context, client *http.Client, url string, chat bareChat) (steps int, err error) {
	for ; ; steps++ {
		body, err := json.Marshal(chat)
		if err != nil {
			return steps, err
		}
		if err := post(ctx, client, url, body, func(answer io.Reader) error { return hearBare(chat, answer) }); err != nil {
			return steps, err
		}

		id, args := chat.made()
		if id == "" {
			return steps, nil
		}

		var call struct{ Path string }
		if err := json.Unmarshal([]byte(args), &call); err != nil {
			return steps, err
		}

		chat.add(lookup(call.Path))
	}
}

// hearBare takes an answer in.
func hearBare(chat bareChat, answer io.Reader) error {
	for lines := bufio.NewScanner(answer); ; {
		if !lines.Scan() {
			return lines.Err()
		}

		data := bytes.TrimPrefix(lines.Bytes(), []byte("data: "))
		if len(data) == 0 || data[0] != '{' {
			continue
		}
		if err := chat.decode(data); err != nil {
			return err
		}
	}
}

// bareBodies are the requests that a bare run makes.
func bareBodies(format string, steps int) ([][]byte, error) {
	chat := newBareChat(format)
	var bodies [][]byte
	for n := 1; ; n++ {
		body, err := json.Marshal(chat)
		if err != nil {
			return nil, err
		}
		if bodies = append(bodies, body); n > steps {
			return bodies, nil
		}
		if err := hearBare(chat, strings.NewReader(fmt.Sprintf(stubAnswers[format].call, n))); err != nil {
			return nil, err
		}

		chat.add(lookup(fmt.Sprint("/f", n)))
	}
}

// floorLoop sends what was built before, and reads no answer: the way there and back alone.
func floorLoop(ctx context.Context, client *http.Client, url string, bodies [][]byte) error {
	for _, body := range bodies {
		if err := post(ctx, client, url, body, func(answer io.Reader) error {
			_, err := io.Copy(io.Discard, answer)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

func post(ctx context.Context, client *http.Client, url string, body []byte, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the stub server said %s", resp.Status)
	}

	return read(resp.Body)
}

// The tool, as each format declares it.
var lookupSchema = json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`)

const (
	lookupAbout = "Looks something up."
	benchSystem = "You look things up, one after the other, and say what you found."
	benchPrompt = "Look everything up."
)

type bareFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

type bareTool struct {
	Type     string       `json:"type"`
	Function bareFunction `json:"function"`
}

// newBareChat begins a conversation in a format.
func newBareChat(format string) bareChat {
	function := []bareTool{{"function", bareFunction{Name: "lookup", Description: lookupAbout, Parameters: lookupSchema}}}
	system, user := "system", benchPrompt
	switch format {
	case "anthropic":
		return &bareAnthropic{Model: "stub", MaxTokens: 32000, System: benchSystem, Stream: true,
			Messages: []bareTurn{{"user", []any{bareBlock{Type: "text", Text: user}}}},
			Tools:    []bareFunction{{Name: "lookup", Description: lookupAbout, InputSchema: lookupSchema}}}
	case "gemini":
		c := &bareGemini{Contents: []bareContent{{"user", []any{barePart{Text: user}}}}, System: bareContent{"", []any{barePart{Text: benchSystem}}}}
		c.Tools = append(c.Tools, struct {
			Functions []bareFunction `json:"functionDeclarations"`
		}{[]bareFunction{function[0].Function}})
		return c
	case "ollama":
		text := benchSystem
		return &bareOllama{Model: "stub", Stream: true, Messages: []bareLine{{Role: system, Content: text}, {Role: "user", Content: user}}, Tools: function}
	}

	text := benchSystem
	return &bareOpenAI{Model: "stub", Stream: true, Messages: []bareMessage{{Role: system, Content: &text}, {Role: "user", Content: &user}}, Tools: function}
}

type bareCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type bareMessage struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []bareCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type bareOpenAI struct {
	Model    string        `json:"model"`
	Messages []bareMessage `json:"messages"`
	Tools    []bareTool    `json:"tools"`
	Stream   bool          `json:"stream"`

	call bareCall
}

func (c *bareOpenAI) decode(data []byte) error {
	var chunk struct {
		Choices []struct {
			Delta struct {
				ToolCalls []bareCall `json:"tool_calls"`
			} `json:"delta"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return err
	}

	for _, choice := range chunk.Choices {
		for _, f := range choice.Delta.ToolCalls {
			if f.ID != "" {
				c.call = f
				continue
			}
			c.call.Function.Arguments += f.Function.Arguments
		}
	}

	return nil
}

func (c *bareOpenAI) made() (id, args string) { return c.call.ID, c.call.Function.Arguments }

func (c *bareOpenAI) add(result string) {
	c.Messages = append(c.Messages, bareMessage{Role: "assistant", ToolCalls: []bareCall{c.call}}, bareMessage{Role: "tool", Content: &result, ToolCallID: c.call.ID})
	c.call = bareCall{}
}

type bareTurn struct {
	Role    string `json:"role"`
	Content []any  `json:"content"`
}

type bareBlock struct {
	Type  string          `json:"type"`
	Text  string          `json:"text,omitempty"`
	ID    string          `json:"id,omitempty"`
	Name  string          `json:"name,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
}

type bareResult struct {
	Type      string `json:"type"`
	ToolUseID string `json:"tool_use_id"`
	Content   string `json:"content"`
}

type bareAnthropic struct {
	Model     string         `json:"model"`
	MaxTokens int            `json:"max_tokens"`
	System    string         `json:"system"`
	Messages  []bareTurn     `json:"messages"`
	Tools     []bareFunction `json:"tools"`
	Stream    bool           `json:"stream"`

	id, args string
}

func (c *bareAnthropic) decode(data []byte) error {
	var chunk struct {
		Block bareBlock `json:"content_block"`
		Delta struct {
			PartialJSON string `json:"partial_json"`
		} `json:"delta"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return err
	}

	if chunk.Block.ID != "" {
		c.id = chunk.Block.ID
	}

	c.args += chunk.Delta.PartialJSON
	return nil
}

func (c *bareAnthropic) made() (id, args string) { return c.id, c.args }

func (c *bareAnthropic) add(result string) {
	c.Messages = append(c.Messages, bareTurn{"assistant", []any{bareBlock{Type: "tool_use", ID: c.id, Name: "lookup", Input: json.RawMessage(c.args)}}},
		bareTurn{"user", []any{bareResult{"tool_result", c.id, result}}})
	c.id, c.args = "", ""
}

type barePart struct {
	Text string            `json:"text,omitempty"`
	Call *bareFunctionCall `json:"functionCall,omitempty"`
}

type bareFunctionCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

type bareResponse struct {
	Response struct {
		ID       string            `json:"id"`
		Name     string            `json:"name"`
		Response map[string]string `json:"response"`
	} `json:"functionResponse"`
}

type bareContent struct {
	Role  string `json:"role,omitempty"`
	Parts []any  `json:"parts"`
}

type bareGemini struct {
	Contents []bareContent `json:"contents"`
	System   bareContent   `json:"systemInstruction"`
	Tools    []struct {
		Functions []bareFunction `json:"functionDeclarations"`
	} `json:"tools"`

	call *bareFunctionCall
}

func (c *bareGemini) decode(data []byte) error {
	var chunk struct {
		Candidates []struct {
			Content struct {
				Parts []barePart `json:"parts"`
			} `json:"content"`
		} `json:"candidates"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return err
	}

	for _, candidate := range chunk.Candidates {
		for _, p := range candidate.Content.Parts {
			if p.Call != nil {
				c.call = p.Call
			}
		}
	}

	return nil
}

func (c *bareGemini) made() (id, args string) {
	if c.call == nil {
		return "", ""
	}
	return c.call.ID, string(c.call.Args)
}

func (c *bareGemini) add(result string) {
	var r bareResponse
	r.Response.ID, r.Response.Name, r.Response.Response = c.call.ID, c.call.Name, map[string]string{"output": result}
	c.Contents = append(c.Contents, bareContent{"model", []any{barePart{Call: c.call}}}, bareContent{"user", []any{r}})
	c.call = nil
}

type bareLine struct {
	Role       string         `json:"role"`
	Content    string         `json:"content"`
	ToolCalls  []bareLineCall `json:"tool_calls,omitempty"`
	ToolName   string         `json:"tool_name,omitempty"`
	ToolCallID string         `json:"tool_call_id,omitempty"`
}

type bareLineCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

type bareOllama struct {
	Model    string     `json:"model"`
	Messages []bareLine `json:"messages"`
	Tools    []bareTool `json:"tools"`
	Stream   bool       `json:"stream"`

	call bareLineCall
}

func (c *bareOllama) decode(data []byte) error {
	var chunk struct {
		Message bareLine `json:"message"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return err
	}

	for _, made := range chunk.Message.ToolCalls {
		c.call = made
	}
	return nil
}

func (c *bareOllama) made() (id, args string) { return c.call.ID, string(c.call.Function.Arguments) }

func (c *bareOllama) add(result string) {
	c.Messages = append(c.Messages, bareLine{Role: "assistant", ToolCalls: []bareLineCall{c.call}},
		bareLine{Role: "tool", Content: result, ToolName: c.call.Function.Name, ToolCallID: c.call.ID})
	c.call = bareLineCall{}
}

// lookup is what the tool finds: 1 KiB of text.
func lookup(path string) string {
	var b strings.Builder
	b.Grow(1100)
	b.WriteString(resultMark)
	b.WriteString(path)
	for b.Len() < 1024-32 {
		b.WriteString("\nblue, 3 pieces, 4.50 in stock")
	}

	return b.String()
}
