package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"strings"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"rouse/agent/model"
)

// maxAnswer bounds an answer that does not come as a stream, in bytes.
const maxAnswer = 16 << 20

// answer is put together from the fragments of a stream.
type answer struct {
	calls  []*model.Call
	args   []*strings.Builder
	usage  model.Usage
	finish string
}

// decode yields text as it comes, and calls and usage once the answer is complete.
func (p *Provider) decode(resp *http.Response) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if kind == "application/json" { // a server that does not stream
			p.decodeWhole(resp, yield)
			return
		}
		if kind != "text/event-stream" {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
			yield(model.Event{}, p.nonsense(false, "answered with %s instead of a stream: %s; check base_url", kind, serverSaid(text)))
			return
		}
		var a answer
		events := ssestream.NewDecoder(resp)
		for events.Next() {
			data := events.Event().Data
			if strings.HasPrefix(strings.TrimSpace(string(data)), "[DONE]") {
				break
			}
			if len(strings.TrimSpace(string(data))) == 0 {
				continue
			}
			text, err := p.add(&a, data)
			if err != nil {
				yield(model.Event{}, err)
				return
			}
			if text != "" && !yield(model.Event{Text: text}, nil) {
				return
			}
		}
		if err := events.Err(); err != nil {
			yield(model.Event{}, &model.Error{Kind: model.KindTruncated, Retryable: true, Message: fmt.Sprintf("the answer of %s broke off", p.o.Model), Err: err})
			return
		}
		p.complete(&a, yield)
	}
}

// add takes one chunk and returns its text.
func (p *Provider) add(a *answer, data []byte) (string, error) {
	var chunk sdk.ChatCompletionChunk
	var failure struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &chunk); err != nil {
		return "", p.nonsense(true, "sent a chunk that is not JSON: %v", err)
	}
	if json.Unmarshal(data, &failure) == nil && len(failure.Error) > 0 && string(failure.Error) != "null" {
		return "", &model.Error{Kind: model.KindUnavailable, Retryable: true, Message: fmt.Sprintf("the model %s failed while it answered: %s", p.o.Model, serverSaid(data))}
	}
	if chunk.Usage.PromptTokens+chunk.Usage.CompletionTokens > 0 {
		a.usage = model.Usage{Input: chunk.Usage.PromptTokens, Output: chunk.Usage.CompletionTokens, Cached: chunk.Usage.PromptTokensDetails.CachedTokens}
	}
	if len(chunk.Choices) == 0 {
		return "", nil
	}
	choice := chunk.Choices[0]
	if choice.FinishReason != "" {
		a.finish = choice.FinishReason
	}
	for _, d := range choice.Delta.ToolCalls {
		if d.Index < 0 || d.Index > int64(len(a.calls)) {
			return "", p.nonsense(true, "numbered its calls %d after %d", d.Index, len(a.calls))
		}
		if d.Index == int64(len(a.calls)) {
			a.calls, a.args = append(a.calls, &model.Call{}), append(a.args, &strings.Builder{})
		}
		c := a.calls[d.Index]
		if d.ID != "" {
			c.ID = d.ID
		}
		c.Name += d.Function.Name
		a.args[d.Index].WriteString(d.Function.Arguments)
	}
	return choice.Delta.Content + choice.Delta.Refusal, nil
}

// complete sends the calls of an answer that the server ended properly.
func (p *Provider) complete(a *answer, yield func(model.Event, error) bool) {
	if a.finish == "" {
		yield(model.Event{}, &model.Error{Kind: model.KindTruncated, Retryable: true, Message: fmt.Sprintf("the answer of %s ended before it was complete", p.o.Model)})
		return
	}
	if a.finish == "length" && len(a.calls) > 0 {
		yield(model.Event{}, &model.Error{Kind: model.KindTruncated, Retryable: true, Message: fmt.Sprintf("the answer of %s was cut off inside a call; raise max_output", p.o.Model)})
		return
	}
	if (a.usage != model.Usage{}) && !yield(model.Event{Usage: &a.usage}, nil) {
		return
	}
	for i, c := range a.calls {
		args := strings.TrimSpace(a.args[i].String())
		if args == "" {
			args = "{}"
		}
		if c.Name == "" {
			yield(model.Event{}, p.nonsense(true, "made a call without a name"))
			return
		}
		// Arguments that are not JSON go to the tool's validation, which tells the model.
		if c.Args = json.RawMessage(args); !json.Valid(c.Args) {
			quoted, err := json.Marshal(args)
			if err != nil {
				yield(model.Event{}, p.nonsense(true, "sent arguments that are no text: %v", err))
				return
			}
			c.Args = quoted
		}
		if !yield(model.Event{Call: c}, nil) {
			return
		}
	}
}

func (p *Provider) decodeWhole(resp *http.Response, yield func(model.Event, error) bool) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		yield(model.Event{}, &model.Error{Kind: model.KindTruncated, Retryable: true, Message: fmt.Sprintf("the answer of %s broke off", p.o.Model), Err: err})
		return
	}
	var whole sdk.ChatCompletion
	if err := json.Unmarshal(body, &whole); err != nil || len(whole.Choices) == 0 {
		yield(model.Event{}, p.nonsense(true, "answered without a choice: %s", serverSaid(body)))
		return
	}
	choice := whole.Choices[0]
	a := answer{finish: choice.FinishReason, usage: model.Usage{Input: whole.Usage.PromptTokens, Output: whole.Usage.CompletionTokens, Cached: whole.Usage.PromptTokensDetails.CachedTokens}}
	for _, c := range choice.Message.ToolCalls {
		args := &strings.Builder{}
		args.WriteString(c.Function.Arguments)
		a.calls, a.args = append(a.calls, &model.Call{ID: c.ID, Name: c.Function.Name}), append(a.args, args)
	}
	if text := choice.Message.Content + choice.Message.Refusal; text != "" && !yield(model.Event{Text: text}, nil) {
		return
	}
	p.complete(&a, yield)
}

func (p *Provider) nonsense(retryable bool, format string, args ...any) error {
	return &model.Error{Kind: model.KindNonsense, Retryable: retryable, Message: fmt.Sprintf("the model %s at %s %s", p.o.Model, p.o.BaseURL, fmt.Sprintf(format, args...))}
}
