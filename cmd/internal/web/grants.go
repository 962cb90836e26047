package web

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/fspath"
)

func newGrant(g ledger.StandingApproval) api.Grant {
	return api.Grant{ID: id(g.ID), Agent: g.Agent, Tool: g.Action.Tool, Action: g.Action.Description, Item: id(g.Item), CreatedAt: api.At(g.CreatedAt)}
}

func (s *Server) grants(r *http.Request) (any, error) {
	given, err := s.ledger.StandingApprovals(r.Context())
	return convert(given, newGrant), err
}

func (s *Server) revoke(ctx context.Context, n int64) (api.Grant, error) {
	g, err := s.ledger.RevokeApproval(ctx, n)
	return newGrant(g), err
}

func newLabel(l ledger.Label) api.Label {
	return api.Label{Kind: string(l.Kind), Place: l.Name, Label: l.Letter, Run: optionalID(l.Run), At: api.At(l.At)}
}

func (s *Server) labels(r *http.Request) (any, error) {
	found, err := s.ledger.Labels(r.Context())
	return convert(found, newLabel), err
}

// clearLabel takes a label off what an owner has inspected: a path with all below it, or all that an agent keeps.
func (s *Server) clearLabel(r *http.Request, ask api.ClearLabel) (any, error) {
	if ask.Label != ledger.TaintUntrusted && ask.Label != ledger.TaintPrivate || (ask.Agent != "") == filepath.IsAbs(ask.Path) {
		return nil, usage("a label A or B, and an agent or an absolute path are needed")
	}

	var places []ledger.Place
	if ask.Agent == "" {
		places = append(places, s.backend.PlaceOf(filepath.Clean(ask.Path)))
	} else {
		var err error
		if places, err = s.backend.Kept(ask.Agent); err != nil {
			return nil, err
		}
	}

	cleared, err := s.ledger.ClearLabel(r.Context(), ask.Label, places...)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, s.notLabelled(r, ask)
	}
	return convert(cleared, newLabel), err
}

// notLabelled says why there was no label to take off; that of a folder is not taken off a part of it.
func (s *Server) notLabelled(r *http.Request, ask api.ClearLabel) error {
	word := map[string]string{ledger.TaintUntrusted: "untrusted", ledger.TaintPrivate: "labelled private"}[ask.Label]
	if ask.Agent != "" {
		return usage("nothing that agent %s keeps is %s; see: rouse grants", ask.Agent, word)
	}

	all, err := s.ledger.Labels(r.Context())
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Kind == ledger.PlaceFile && l.Letter == ask.Label && fspath.Within(ask.Path, l.Name) {
			return usage("%s is %s because all of %s is, where a program of run %d may have written anything; name that folder", ask.Path, word, l.Name, l.Run)
		}
	}
	return usage("%s is not %s, and nothing below it; see: rouse grants", ask.Path, word)
}
