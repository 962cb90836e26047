package gemini

import (
	"encoding/json"
	"errors"
	"strings"

	"rouse/agent/model"
	"rouse/agent/model/wire"
)

// chunk is a piece of a stream; each is an answer of its own.
type chunk struct {
	Candidates []struct {
		Index   int `json:"index"`
		Content struct {
			Parts []piece `json:"parts"`
		} `json:"content"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Feedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *struct {
		Prompt     wire.Count `json:"promptTokenCount"`
		ToolPrompt wire.Count `json:"toolUsePromptTokenCount"`
		Cached     wire.Count `json:"cachedContentTokenCount"`
		Candidates wire.Count `json:"candidatesTokenCount"`
		Thoughts   wire.Count `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
	Error json.RawMessage `json:"error"`
}

type piece struct {
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

// meanings of finishReason. Calls have no reason of their own.
var meanings = map[string]string{
	"stop": model.StopDone, "max_tokens": model.StopLength,
	"safety": model.StopFilter, "recitation": model.StopFilter, "language": model.StopFilter, "blocklist": model.StopFilter,
	"prohibited_content": model.StopFilter, "spii": model.StopFilter, "image_safety": model.StopFilter, "model_armor": model.StopFilter,
	"malformed_function_call": wire.StopGarbled, "unexpected_tool_call": wire.StopGarbled, "too_many_tool_calls": wire.StopGarbled,
	"malformed_response": wire.StopGarbled, "missing_thought_signature": wire.StopGarbled,
	"other": wire.StopGaveUp, "finish_reason_unspecified": wire.StopGaveUp,
}

// errPieces: only who asks for calls in pieces gets them.
var errPieces = errors.New("a call in pieces")

// Take implements wire.Exchange.
func (t *turn) Take(f wire.Frame, a *wire.Answer) (string, error) {
	if f.Whole && f.Data[0] == '[' {
		return t.takeList(f, a)
	}

	var c chunk
	err := json.Unmarshal(f.Data, &c)
	switch {
	case f.Event == "error", len(c.Error) > 0 && string(c.Error) != "null":
		return "", t.p.server.Failure(f.Data)
	case err != nil:
		return "", t.p.server.Unreadable(err)
	case c.Feedback.BlockReason != "" && len(c.Candidates) == 0:
		return "", t.p.server.Withheld("any answer to this prompt", c.Feedback.BlockReason)
	case f.Whole && len(c.Candidates) == 0:
		return "", t.p.server.Pointless(f.Data)
	}

	if u := c.Usage; u != nil {
		a.Usage = wire.Tokens(u.Prompt+u.ToolPrompt, u.Candidates+u.Thoughts, u.Cached, 0)
	}

	var text strings.Builder
	for _, candidate := range c.Candidates {
		if candidate.Index != 0 {
			continue // one answer was asked for
		}

		for _, p := range candidate.Content.Parts {
			said, err := t.take(p, a)
			if err != nil {
				return "", err
			}
			text.WriteString(said)
		}

		if candidate.FinishReason != "" {
			a.End(candidate.FinishReason, meanings)
		}
	}

	return text.String(), nil
}

// takeList takes in the chunks of a server that does not stream: they come in a list.
func (t *turn) takeList(f wire.Frame, a *wire.Answer) (string, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(f.Data, &list); err != nil {
		return "", t.p.server.Unreadable(err)
	}

	var text strings.Builder
	for _, data := range list {
		said, err := t.Take(wire.Frame{Data: data}, a)
		if err != nil {
			return "", err
		}
		text.WriteString(said)
	}

	return text.String(), nil
}

// take adds one part to the answer, and gives its text. What the model thought is not for
// others, and its text need not go back.
func (t *turn) take(p piece, a *wire.Answer) (string, error) {
	switch {
	case p.Thought:
	case p.Call != nil:
		if p.Call.WillContinue || len(p.Call.PartialArgs) > 0 {
			return "", t.p.server.Unreadable(errPieces)
		}
		c := a.Call(len(a.Calls), p.Call.ID, p.Call.Name)
		c.Args.Write(p.Call.Args)
		a.Keep(wire.Part{Call: len(a.Calls), Opaque: p.Signature})
	case p.Text != "" || p.Signature != nil:
		a.Keep(wire.Part{Text: len(p.Text), Opaque: p.Signature})
		return p.Text, nil
	}
	return "", nil
}
