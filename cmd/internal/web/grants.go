package web

import (
	"errors"
	"net/http"
	"strconv"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
)

func newGrant(g ledger.StandingApproval) api.Grant {
	return api.Grant{ID: id(g.ID), Agent: g.Agent, Tool: g.Action.Tool, Action: g.Action.Description, Item: id(g.Item), CreatedAt: api.At(g.CreatedAt)}
}

func (s *server) grants(r *http.Request) (any, error) {
	given, err := s.ledger.StandingApprovals(r.Context())
	out := []api.Grant{}
	for _, g := range given {
		out = append(out, newGrant(g))
	}
	return out, err
}

func (s *server) revoke(r *http.Request) (any, error) {
	n, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return nil, usage("%q is not a grant; grants have numbers, see: rouse grants", r.PathValue("id"))
	}
	g, err := s.ledger.RevokeApproval(r.Context(), n)
	return newGrant(g), err
}

func (s *server) untrusted(r *http.Request) (any, error) {
	found, err := s.ledger.UntrustedMemories(r.Context())
	out := []api.Memory{}
	for _, m := range found {
		out = append(out, api.Memory{Agent: m.Agent, Run: id(m.Run), At: api.At(m.At)})
	}
	return out, err
}

// trust takes the memory of an agent for trusted again, which its owner has looked at.
func (s *server) trust(r *http.Request) (any, error) {
	agent := r.PathValue("agent")
	err := s.ledger.TrustMemory(r.Context(), agent)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, usage("nothing that agent %s keeps is untrusted; see: rouse grants", agent)
	}
	return struct{}{}, err
}
