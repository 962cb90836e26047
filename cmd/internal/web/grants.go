package web

import (
	"errors"
	"net/http"
	"strconv"

	"rouse/agentdb/ledger"
)

// Grant is what an owner has allowed an agent's runs until they take it back.
type Grant struct {
	ID        string `json:"id"`
	Agent     string `json:"agent"`
	Tool      string `json:"tool"` // "" of a job's definition
	Action    string `json:"action"`
	Item      string `json:"item"` // of the inbox, in which it was given
	CreatedAt Time   `json:"created_at"`
}

func newGrant(g ledger.Standing) Grant {
	return Grant{ID: id(g.ID), Agent: g.Agent, Tool: g.Action.Tool, Action: g.Action.Shown, Item: id(g.Item), CreatedAt: Time{g.CreatedAt}}
}

func (s *server) grants(r *http.Request) (any, error) {
	given, err := s.ledger.StandingGrants(r.Context())
	out := []Grant{}
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
	g, err := s.ledger.Revoke(r.Context(), n)
	return newGrant(g), err
}

// Memory is an agent whose database and files are not trusted any more, since a run wrote them
// that had met untrusted content.
type Memory struct {
	Agent string `json:"agent"`
	Run   string `json:"run"`
	At    Time   `json:"at"`
}

func (s *server) untrusted(r *http.Request) (any, error) {
	found, err := s.ledger.UntrustedMemories(r.Context())
	out := []Memory{}
	for _, m := range found {
		out = append(out, Memory{m.Agent, id(m.Run), Time{m.At}})
	}
	return out, err
}

// trust takes the memory of an agent for trusted again, which its owner has looked at.
func (s *server) trust(r *http.Request) (any, error) {
	agent := r.PathValue("agent")
	err := s.ledger.Trust(r.Context(), agent)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, usage("nothing that agent %s keeps is untrusted; see: rouse grants", agent)
	}
	return struct{}{}, err
}
