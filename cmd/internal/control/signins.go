package control

import (
	"context"
	"errors"
	"net/http"

	"rouse/agent/tool/moduleapi/signin"
	"rouse/cmd/internal/api"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

// SignIns returns the sign-ins of skills, without tokens.
func (x *Extensions) SignIns(context.Context) ([]api.SignIn, error) {
	kept, err := x.Runner.SignIns.List()
	out := []api.SignIn{}
	for _, k := range kept {
		out = append(out, api.SignIn{Name: k.String(), Agent: k.Agent, Skill: k.Skill, Provider: k.Provider, Service: k.Service, Status: string(k.Status),
			Scopes: append([]string{}, k.Scopes...), Since: api.At(k.Since), ExpiresAt: api.At(k.Expires), Renews: k.Renews, Waiting: k.Waiting})
	}
	return out, err
}

// RemoveSignIn removes a sign-in.
func (x *Extensions) RemoveSignIn(ctx context.Context, name string) error {
	id, ok := signin.ParseID(name)
	if !ok {
		return &api.Error{Status: http.StatusBadRequest, Message: "a sign-in is named as AGENT/SKILL/PROVIDER; see: rouse skills sign-ins", Usage: true}
	}

	err := x.Runner.SignIns.Remove(ctx, id)
	if !errors.Is(err, signin.ErrNone) {
		return err
	}
	kept, err := x.SignIns(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, k := range kept {
		names = append(names, k.Name)
	}
	return &api.Error{Status: http.StatusNotFound, Message: text.NoSuch("sign-in", name, names), Usage: true}
}

// SignInLink returns the sign-in link of an inbox item, or an empty string if the item is not a
// sign-in.
func (x *Extensions) SignInLink(ctx context.Context, i inbox.Item) (string, error) {
	return x.Runner.SignIns.Link(ctx, i)
}

// AnswerSignIn completes a sign-in with the pasted answer. It returns false if the item is not a
// sign-in.
func (x *Extensions) AnswerSignIn(ctx context.Context, i inbox.Item, pasted string) (taken bool, err error) {
	return x.Runner.SignIns.Answer(ctx, i, pasted)
}
