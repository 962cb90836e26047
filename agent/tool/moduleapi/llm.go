package moduleapi

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rouse/agent/model"
	"rouse/agent/tool"
	"rouse/internal/domain"
)

// completeSpec has a database effect. After an interruption, an unanswered question is asked again.
// Later attempts reuse a recorded answer, so that it is paid for once.
var completeSpec = tool.Spec{
	Name: "host_llm_complete", Description: "Asks the agent's model for a module.", Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesNothing,
	Args: reflect.TypeFor[completeArgs](), Requires: tool.RequiresModule, Nests: true, Timeout: -1,
}

// Asks reports whether a call asks a model.
func (c Call) Asks() bool { return c.Tool == completeSpec.Name }

type completeArgs struct {
	PurposeID    string        `json:"purposeId"`
	SystemPrompt string        `json:"systemPrompt,omitempty"`
	Messages     []chatMessage `json:"messages"`
	Temperature  *float64      `json:"temperature,omitempty"`
	MaxTokens    int           `json:"maxTokens,omitempty"`
}

type chatMessage struct {
	Role    string `json:"role"` // user, assistant
	Content string `json:"content"`
}

type completed struct {
	Text       string     `json:"text"`
	TokensUsed tokensUsed `json:"tokensUsed"`
}

type tokensUsed struct {
	Prompt     int64 `json:"prompt"`
	Completion int64 `json:"completion"`
}

func (h *Host) complete(ctx context.Context, in tool.Invocation, a completeArgs) (tool.Envelope, error) {
	c := Completion{System: a.SystemPrompt, Temperature: a.Temperature, MaxTokens: a.MaxTokens}
	for _, u := range h.o.Manifest.LLMUsage {
		if c.Temperature == nil && u.PurposeID == a.PurposeID && u.TemperatureHint != 0 {
			c.Temperature = &u.TemperatureHint
		}
	}
	for _, m := range a.Messages {
		c.Messages = append(c.Messages, model.Message{Role: model.Role(m.Role), Text: m.Content})
	}

	done, err := h.o.Complete(ctx, in, c)
	if err != nil {
		return tool.Envelope{}, err
	}
	if done.Why != "" {
		e := tool.Failure(tool.KindUnavailable, "the model gave no text: %s", done.Why)
		e.Retryable = done.Retryable
		return e, nil
	}
	return tool.Success(completed{done.Text, tokensUsed{done.Input, done.Output}}), nil
}

// checkQuestion returns an error if a question must not be sent to a model.
func (h *Host) checkQuestion(a completeArgs) error {
	var declared []string
	for _, u := range h.o.Manifest.LLMUsage {
		declared = append(declared, u.PurposeID)
	}
	switch {
	case !slices.Contains(declared, a.PurposeID):
		return tool.Refuse(tool.KindRejected, "the purpose %q is not among the llmUsage of the skill's manifest: %s", a.PurposeID, strings.Join(declared, ", ")).WithField("purposeId", "one that is declared")
	case len(a.Messages) == 0 || a.Messages[len(a.Messages)-1].Role != string(model.RoleUser):
		return tool.Refuse(tool.KindInvalidArgs, "the last message must be one of the user").WithField("messages", "[{role: \"user\", content: …}]")
	case a.MaxTokens < 0:
		return tool.Refuse(tool.KindInvalidArgs, "maxTokens is below 0").WithField("maxTokens", "a number of tokens")
	}
	for i, m := range a.Messages {
		if m.Role != string(model.RoleUser) && m.Role != string(model.RoleAssistant) {
			return tool.Refuse(tool.KindInvalidArgs, "the role %q is neither user nor assistant", m.Role).WithField(fmt.Sprintf("messages[%d].role", i), "user or assistant")
		}
	}
	return nil
}
