package gemini

import (
	"encoding/json"
	"errors"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
	"rouse/internal/jsonread"
)

type chunk struct {
	Candidates []struct {
		Index   int `json:"index"`
		Content struct {
			Parts []answerPart `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Feedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *struct {
		Prompt     wire.TokenCount `json:"promptTokenCount"`
		ToolPrompt wire.TokenCount `json:"toolUsePromptTokenCount"`
		Cached     wire.TokenCount `json:"cachedContentTokenCount"`
		Candidates wire.TokenCount `json:"candidatesTokenCount"`
		Thoughts   wire.TokenCount `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
	Error json.RawMessage `json:"error"`
}

type answerPart struct {
	Text      string          `json:"text"`
	Thought   bool            `json:"thought"`
	Signature json.RawMessage `json:"thoughtSignature"`
	Call      *struct {
		ID           string          `json:"id"`
		Name         string          `json:"name"`
		Args         json.RawMessage `json:"args"`
		PartialArgs  json.RawMessage `json:"partialArgs"`
		WillContinue bool            `json:"willContinue"`
	} `json:"functionCall"`
}

// stopReasons translates finishReason. The API has no separate reason for calls.
var stopReasons = map[string]string{
	"stop": model.StopDone, "max_tokens": model.StopLength,
	"safety": model.StopFilter, "recitation": model.StopFilter, "language": model.StopFilter, "blocklist": model.StopFilter,
	"prohibited_content": model.StopFilter, "spii": model.StopFilter, "image_safety": model.StopFilter, "model_armor": model.StopFilter,
	"malformed_function_call": wire.StopInvalidCall, "unexpected_tool_call": wire.StopInvalidCall, "too_many_tool_calls": wire.StopInvalidCall,
	"malformed_response": wire.StopInvalidCall, "missing_thought_signature": wire.StopInvalidCall,
	"other": wire.StopServerError, "finish_reason_unspecified": wire.StopServerError,
}

// errPartialCall cannot happen, because calls are streamed in fragments only on request.
var errPartialCall = errors.New("a call in pieces")

// Decode implements wire.Exchange.
func (t *turn) Decode(f wire.Frame, a *wire.Accumulator) (string, error) {
	if f.Document && f.Data[0] == '[' {
		return t.decodeList(f, a)
	}

	var c chunk
	err := jsonread.Unmarshal(f.Data, &c)
	switch {
	case f.Event == "error", len(c.Error) > 0 && string(c.Error) != "null":
		return "", t.p.client.APIError(f.Data)
	case err != nil:
		return "", t.p.client.InvalidChunk(err)
	case c.Feedback.BlockReason != "" && len(c.Candidates) == 0:
		return "", t.p.client.ContentFiltered("any answer to this prompt", c.Feedback.BlockReason)
	case f.Document && len(c.Candidates) == 0:
		return "", t.p.client.NoAnswer(f.Data)
	}

	// Counts are cumulative. Thoughts are counted separately and billed as output.
	if u := c.Usage; u != nil {
		a.Usage = wire.NewUsage(u.Prompt+u.ToolPrompt, u.Candidates+u.Thoughts, u.Cached, 0)
	}

	var text strings.Builder
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 {
			continue // only one candidate was requested
		}

		for _, p := range candidate.Content.Parts {
			delta, err := t.addPart(p, a)
			if err != nil {
				return "", err
			}
			text.WriteString(delta)
		}

		if candidate.FinishReason != "" {
			a.SetFinishReason(candidate.FinishReason, stopReasons)
		}
	}

	return text.String(), nil
}

func (t *turn) decodeList(f wire.Frame, a *wire.Accumulator) (string, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(f.Data, &list); err != nil {
		return "", t.p.client.InvalidChunk(err)
	}

	var text strings.Builder
	for _, data := range list {
		delta, err := t.Decode(wire.Frame{Data: data}, a)
		if err != nil {
			return "", err
		}
		text.WriteString(delta)
	}

	return text.String(), nil
}

// addPart adds a part and returns its text. It drops thoughts and keeps signatures.
func (t *turn) addPart(p answerPart, a *wire.Accumulator) (string, error) {
	switch {
	case p.Thought:
	case p.Call != nil:
		// If there is no id, package wire generates one and uses it for the call and its result.
		if p.Call.WillContinue || len(p.Call.PartialArgs) > 0 {
			return "", t.p.client.InvalidChunk(errPartialCall)
		}
		c := a.StartCall(len(a.Calls), p.Call.ID, p.Call.Name)
		c.Args.Write(p.Call.Args)
		a.AddPart(wire.Part{Call: len(a.Calls), Opaque: p.Signature})
	case p.Text != "" || p.Signature != nil: // a signature may come with an empty text
		a.AddPart(wire.Part{Text: len(p.Text), Opaque: p.Signature})
		return p.Text, nil
	}
	return "", nil
}
