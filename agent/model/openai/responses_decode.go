package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
	"rouse/internal/jsonread"
)

// responsesEvent is any event of a stream, or a whole response from a server that does not stream.
type responsesEvent struct {
	Type     string          `json:"type"`
	Index    int             `json:"output_index"`
	Item     json.RawMessage `json:"item"`
	Delta    json.RawMessage `json:"delta"`
	Response *responsesBody  `json:"response"`
	Error    json.RawMessage `json:"error"`
	responsesBody
}

type responsesBody struct {
	Object     string            `json:"object"`
	Status     string            `json:"status"`
	Output     []json.RawMessage `json:"output"`
	Incomplete struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
	Usage *struct {
		Input   wire.TokenCount `json:"input_tokens"`
		Output  wire.TokenCount `json:"output_tokens"`
		Details struct {
			Cached wire.TokenCount `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	} `json:"usage"`
}

// outputItem is the received part of an item: text, a call, or reasoning.
type outputItem struct {
	kind     string
	id, name string // set for a call
	args     string // set for a finished call
	emitted  int    // bytes of text returned by Decode
	phase    string
	raw      json.RawMessage // an opaque item, unchanged
	done     bool
}

type outputItemJSON struct {
	Type      string    `json:"type"`
	CallID    string    `json:"call_id"`
	Name      string    `json:"name"`
	Arguments arguments `json:"arguments"`
	Phase     string    `json:"phase"`
	Content   []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	} `json:"content"`
	Encrypted string `json:"encrypted_content"`
}

// responsesStopReasons translates the status of a response, or the reason why it is incomplete.
var responsesStopReasons = map[string]string{
	"completed": model.StopDone, "max_output_tokens": model.StopLength, "max_tokens": model.StopLength, "content_filter": model.StopFilter, "cancelled": wire.StopServerError, "failed": wire.StopServerError,
}

// maxItems is the maximum number of items, because all items below the highest index are allocated.
const maxItems = 4096

// Decode implements wire.Exchange.
func (t *responsesTurn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	if bytes.HasPrefix(f.Data, []byte("[DONE]")) {
		return "", io.EOF
	}

	var e responsesEvent
	err := jsonread.Unmarshal(f.Data, &e)
	switch {
	case f.Event == "error", e.Type == "error", f.Document && f.Data[0] == '[', len(e.Error) > 0 && string(e.Error) != "null":
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	case f.Document && e.Object != "response":
		return "", t.p.client.NoAnswer(f.Data)
	case f.Document:
		return t.finish(e.responsesBody, a)
	}

	switch e.Type {
	case "response.output_item.added":
		return "", t.startItem(e.Index, e.Item)
	case "response.output_text.delta", "response.refusal.delta":
		return t.addDelta(e)
	case "response.output_item.done":
		return t.finishItem(e.Index, e.Item)
	case "response.failed":
		var failed struct{ Response json.RawMessage }
		if json.Unmarshal(f.Data, &failed) == nil && len(failed.Response) > 0 {
			return "", t.p.client.APIError(failed.Response)
		}
		return "", t.p.client.APIError(f.Data)
	case "response.completed", "response.incomplete", "response.cancelled":
		if e.Response == nil {
			return "", t.p.client.InvalidChunk(fmt.Errorf("%s comes without a response", e.Type))
		}

		text, err := t.finish(*e.Response, a)
		if err == nil {
			err = io.EOF
		}
		return text, err
	}

	return "", nil
}

// item returns the item at an index. Events of items may arrive in any order.
func (t *responsesTurn) item(index int) (*outputItem, error) {
	if index < 0 || index >= maxItems {
		return nil, t.p.client.InvalidChunk(fmt.Errorf("there is no item %d", index))
	}
	for len(t.items) <= index {
		t.items = append(t.items, &outputItem{})
	}
	return t.items[index], nil
}

func (t *responsesTurn) startItem(index int, raw json.RawMessage) error {
	var in outputItemJSON
	if err := json.Unmarshal(raw, &in); err != nil {
		return t.p.client.InvalidChunk(err)
	}

	it, err := t.item(index)
	if err == nil && it.kind == "" {
		it.kind, it.id, it.name, it.phase = in.Type, in.CallID, in.Name, in.Phase
	}
	return err
}

func (t *responsesTurn) addDelta(e responsesEvent) (string, error) {
	var piece string
	if err := wire.UnmarshalString(e.Delta, &piece); err != nil {
		return "", t.p.client.InvalidChunk(err)
	}

	it, err := t.item(e.Index)
	if err != nil {
		return "", err
	}

	if it.kind == "" {
		it.kind = "message"
	}
	if it.kind != "message" || it.done {
		return "", t.p.client.InvalidChunk(fmt.Errorf("text for item %d, which is not being said", e.Index))
	}

	if e.Type == "response.refusal.delta" {
		it.phase = refusal
	}

	it.emitted += len(piece)
	return piece, nil
}

// refusal is the phase of a message in which the model declined to answer.
const refusal = "refusal"

// finishItem records a finished item. It returns the text of the item, unless deltas contained it.
func (t *responsesTurn) finishItem(index int, raw json.RawMessage) (string, error) {
	var in outputItemJSON
	if err := json.Unmarshal(raw, &in); err != nil {
		return "", t.p.client.InvalidChunk(err)
	}

	it, err := t.item(index)
	if err != nil || it.done {
		return "", err
	}

	it.done, it.kind = true, in.Type
	switch in.Type {
	case "function_call":
		it.id, it.name, it.args = in.CallID, in.Name, string(in.Arguments)
	case "message":
		var text strings.Builder
		if it.phase != refusal {
			it.phase = in.Phase
		}

		for _, c := range in.Content {
			text.WriteString(c.Text + c.Refusal)
			if c.Refusal != "" {
				it.phase = refusal
			}
		}
		if it.emitted == 0 {
			it.emitted = text.Len()
			return text.String(), nil
		}
	default:
		// Reasoning without content refers to stored data, but the server does not store it.
		if in.Type != "reasoning" || in.Encrypted != "" || len(in.Content) > 0 {
			it.raw = bytes.Clone(raw)
		}
	}

	return "", nil
}

// finish adds the items to the answer. It sets no finish reason if a call is incomplete.
func (t *responsesTurn) finish(b responsesBody, a *wire.Accumulator) (string, error) {
	var text strings.Builder
	// The final event repeats all items. Finished items are not added again.
	for i, raw := range b.Output {
		delta, err := t.finishItem(i, raw)
		if err != nil {
			return "", err
		}
		text.WriteString(delta)
	}

	if u := b.Usage; u != nil {
		a.Usage = wire.NewUsage(u.Input, u.Output, u.Details.Cached, 0)
	}

	complete, refused := true, false
	for _, it := range t.items {
		switch it.kind {
		case "function_call":
			a.StartCall(len(a.Calls), it.id, it.name).Args.WriteString(it.args)
			a.AddPart(wire.Part{Call: len(a.Calls)})
			complete = complete && it.done
		case "message":
			p := wire.Part{Text: it.emitted}
			if it.phase == refusal {
				refused = true
			} else if it.phase != "" && it.emitted > 0 {
				raw, err := json.Marshal(textState{it.phase})
				if err != nil {
					return "", err
				}
				p.Opaque = raw
			}

			a.AddPart(p)
		default:
			if it.raw != nil {
				a.AddPart(wire.Part{Opaque: it.raw})
			}
		}
	}

	reason := b.Status
	if b.Incomplete.Reason != "" {
		reason = b.Incomplete.Reason
	}
	if reason == "" || reason == "completed" && !complete {
		return text.String(), nil // cut off
	}

	a.SetFinishReason(reason, responsesStopReasons)
	if refused && a.StopReason == model.StopDone {
		a.StopReason = model.StopRefusal
	}

	return text.String(), nil
}
