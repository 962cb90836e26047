package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/control"
	"rouse/internal/form"
	"rouse/internal/fspath"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/ledger/label"
	"rouse/internal/text"
)

// Inbox lists and answers items that wait for a person. It also handles standing approvals and
// labels.
type Inbox struct {
	*responder
	ledger    *ledger.Ledger
	storage   *control.Storage
	signIns   *control.Extensions
	runs      *Runs
	databases *databases
}

func (s *Inbox) routes() []Route {
	return []Route{
		get[[]api.Item]("/v1/inbox", "What waits for a person.", s.answer(asked(s.List))),
		get[[]api.Item]("/v1/inbox/closed", "What waited for a person and does no more, the newest first.", s.answer(s.closed),
			Param{Name: "n", Kind: ParamCount, Most: maxRuns, Description: "how many at most"},
			Param{Name: "before", Kind: ParamCursor, Description: "those before the item of this id"}),
		post[api.Answer, api.Run]("/v1/inbox/{id}/answer", "Answers an item, and answers with the run that goes on.", s.answer(withIDBody("an item", "rouse inbox", s.Answer))),
		get[[]api.Grant]("/v1/grants", "Standing approvals.", s.answer(s.grants)),
		post[api.Nothing, api.Grant]("/v1/grants/{id}/revoke", "Takes a standing approval back.", s.answer(withID("a grant", "rouse grants", s.revoke))),
		get[[]api.Label]("/v1/labels", "Labels on data: what strangers may have written, and what is private.", s.answer(s.labels)),
		post[api.ClearLabel, []api.Label]("/v1/labels/clear", "Takes a label off data that its owner has looked at.", s.answer(withBody(s.clearLabel))),
	}
}

// Limits of texts, in characters.
const (
	maxAnswer = 8000 // of an answer
	maxQuoted = 80   // of an answer quoted in a message
)

// defaultClosed is the default number of closed items in a listing.
const defaultClosed = 50

func newItem(i inbox.Item) api.Item {
	action, hash := "rouse answer "+api.ID(i.ID)+" "+answers(i), ""
	if i.Kind == inbox.KindApproval {
		action, hash = i.Action.Description, i.Action.Hash
	}

	runs := []string{api.ID(i.Run)}
	if i.Kind == inbox.KindDatabase { // it does not belong to a run
		runs = []string{}
	}

	return api.Item{ID: api.ID(i.ID), Run: strings.Join(runs, ""), Runs: runs, Job: i.Job, Agent: i.Agent, Kind: i.Kind, Title: i.Title, Message: i.Message, Options: i.Options, Multiple: i.Multiple, InputSchema: i.InputSchema,
		Action: action, Tool: i.Action.Tool, Hash: hash, State: i.State, Answer: i.Answer, Reason: i.Reason, CreatedAt: api.At(i.CreatedAt), ExpiresAt: api.At(i.ExpiresAt)}
}

// answers returns a placeholder for the answer to an item.
func answers(i inbox.Item) string {
	if len(i.InputSchema) > 0 {
		return "JSON"
	}
	if i.Kind == inbox.KindInput {
		return "TEXT"
	}
	return strings.Join(i.Options, "|")
}

// List returns the open items. It merges the same question of several runs.
func (s *Inbox) List(ctx context.Context) ([]api.Item, error) {
	items, err := s.ledger.Inbox.List(ctx)
	out := []api.Item{}
	type action struct{ agent, hash string }
	asked := map[action]int{}
	for _, i := range items {
		same := action{i.Agent, i.Action.Hash}
		// The same question of several runs is one item.
		if at, again := asked[same]; again && same.hash != "" {
			out[at].Runs = append(out[at].Runs, api.ID(i.Run))
			continue
		}
		asked[same] = len(out)
		out = append(out, s.withLink(ctx, newItem(i), i))
	}

	return out, err
}

// Item returns one item of the inbox, open or closed.
func (s *Inbox) Item(ctx context.Context, id int64) (api.Item, error) {
	i, err := s.ledger.Inbox.Get(ctx, id)
	out := newItem(i)
	if err != nil || i.State != inbox.ItemOpen || i.Action.Hash == "" {
		return out, err
	}

	open, err := s.ledger.Inbox.List(ctx)
	for _, o := range open {
		if o.ID != i.ID && o.Agent == i.Agent && o.Action.Hash == i.Action.Hash {
			out.Runs = append(out.Runs, newItem(o).Run)
		}
	}
	return out, err
}

func (s *Inbox) closed(r *http.Request) (any, error) {
	return s.Closed(r.Context(), number(r, "before", 0), int(number(r, "n", defaultClosed)))
}

// Closed returns closed items, newest first. It returns only items with numbers below before,
// unless before is 0.
func (s *Inbox) Closed(ctx context.Context, before int64, n int) ([]api.Item, error) {
	items, err := s.ledger.Inbox.Closed(ctx, before, n)
	return convert(items, newItem), err
}

// Answer answers an item. It returns the state of the run that asked.
func (s *Inbox) Answer(ctx context.Context, n int64, in api.Answer) (api.Run, error) {
	item, err := s.ledger.Inbox.Get(ctx, n)
	if err != nil {
		return api.Run{}, err
	}
	// A question that was answered accepts the same answer again.
	if item.State != inbox.ItemOpen && (item.Kind != inbox.KindInput || item.State != inbox.ItemAnswered) {
		return api.Run{}, closedReason(item)
	}
	// rouse approve must not answer a question that has the given number.
	if in.Kind != "" && in.Kind != item.Kind {
		return api.Run{}, usage("inbox item %d is of the kind %s, and not of %s; see: rouse inbox", n, item.Kind, in.Kind)
	}

	// An approval without a tool approves a definition. It is valid until the definition changes.
	if in.Text == inbox.ApprovalAlways && item.Kind == inbox.KindApproval && item.Action.Tool == "" {
		in.Text = inbox.ApprovalOnce
	}

	text, err := matchAnswer(item, in.Text)
	if err != nil {
		return api.Run{}, err
	}
	if utf8.RuneCountInString(in.Reason) > maxAnswer {
		return api.Run{}, usage("the reason has more than %d characters", maxAnswer)
	}

	if item.Kind == inbox.KindDatabase { // there is only one answer, and no run to continue
		return api.Run{Agent: item.Agent}, s.databases.accept(ctx, item.Agent)
	}

	if item.State == inbox.ItemOpen { // a sign-in answer is a secret, so it is not recorded
		if taken, err := s.takeSignIn(ctx, item, text); taken {
			if err != nil {
				return api.Run{}, err
			}
			run, err := s.ledger.Runs.Get(ctx, item.Run)
			return s.runs.oneWithArtifacts(ctx, run, err)
		}
	}

	reply := ledger.Reply{Text: text, All: in.All, Untrusted: in.Untrusted}
	if text == inbox.ApprovalDeny && item.Kind == inbox.KindApproval {
		reply.Reason = strings.TrimSpace(in.Reason)
	}
	run, err := s.ledger.AnswerAs(ctx, n, reply)

	// Another answer came first, or the item has expired since the read above. Report which.
	if errors.Is(err, inbox.ErrClosed) {
		if item, err = s.ledger.Inbox.Get(ctx, n); err == nil {
			err = closedReason(item)
		}
	}
	if err != nil {
		return api.Run{}, err
	}

	// A dispatcher may have resumed the run already, so return its current state.
	run, err = s.ledger.Runs.Get(ctx, run.ID)
	return s.runs.oneWithArtifacts(ctx, run, err)
}

// closedReason returns the reason why an item cannot be answered any more.
func closedReason(i inbox.Item) error {
	why := "nobody answered it in time"
	switch i.State {
	case inbox.ItemAnswered:
		why = fmt.Sprintf("it was answered %q", text.Truncate(i.Answer, maxQuoted))
	case inbox.ItemWithdrawn:
		why = "its run ended otherwise, or asks again"
	case inbox.ItemOpen:
		// An expired item is open until a daemon ends its run.
		if i.ExpiresAt.IsZero() || time.Now().Before(i.ExpiresAt) {
			why = "its run does not wait for it"
		}
	}

	see := fmt.Sprintf("rouse show %d", i.Run)
	if i.Kind == inbox.KindDatabase { // it does not belong to a run
		see = "rouse doctor"
		if i.State == inbox.ItemWithdrawn {
			why = "the database was replaced, or its ledger is back"
		}
	}

	return conflict("inbox item %d is not open any more: %s at %s; see: %s", i.ID, why, cmp.Or(i.ClosedAt, i.ExpiresAt).UTC().Format(time.RFC3339), see)
}

// matchAnswer parses an answer: the words or numbers of options, or free text, which only a
// question accepts. It refuses a small number that is not an option as a typing error.
func matchAnswer(i inbox.Item, answer string) (string, error) {
	answer = strings.TrimSpace(answer)
	switch n := utf8.RuneCountInString(answer); {
	case n == 0:
		return "", usage("the answer is empty")
	case n > maxAnswer:
		return "", usage("the answer has %d characters; at most %d are taken", n, maxAnswer)
	}

	if len(i.InputSchema) > 0 {
		return fillForm(i, answer)
	}
	if len(i.Options) == 0 {
		return answer, nil
	}
	// Match the whole text first, because an option may contain a comma.
	if o, ok := option(i.Options, answer); ok {
		return o, nil
	}

	var chosen []string
	parts := strings.Split(answer, ",")
	for _, p := range parts {
		p = strings.TrimSpace(p)
		if o, ok := option(i.Options, p); ok {
			if !slices.Contains(chosen, o) {
				chosen = append(chosen, o)
			}
			continue
		}

		// A longer number is probably an amount or a year. If an option is itself a number, any
		// number may be an answer.
		if n, err := strconv.Atoi(p); err == nil && len(p) < 3 && !slices.ContainsFunc(i.Options, isNumber) {
			return "", usage("there is no option %d; there are %s", n, numbered(i.Options))
		}
		if i.Kind != inbox.KindInput {
			return "", usage("%q is no answer to this; the answers are %s", text.Truncate(answer, maxQuoted), numbered(i.Options))
		}

		return answer, nil // a free answer
	}
	if len(chosen) > 1 && !i.Multiple {
		return "", usage("only one of the options can be chosen: %s", numbered(i.Options))
	}

	return strings.Join(chosen, ", "), nil
}

// fillForm converts an answer to JSON for an item with an input schema. The ledger validates it.
func fillForm(i inbox.Item, answer string) (string, error) {
	f, err := form.Parse(i.InputSchema)
	if err != nil {
		return "", err
	}

	value, err := f.Answer(answer)
	if err != nil {
		return "", usage("the answer to inbox item %d does not fit: %v", i.ID, err)
	}
	return string(value), nil
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// numbered lists options with their numbers.
func numbered(options []string) string {
	var out []string
	for n, o := range options {
		out = append(out, fmt.Sprintf("%d. %s", n+1, o))
	}
	return strings.Join(out, ", ")
}

func option(options []string, text string) (string, bool) {
	if i := slices.IndexFunc(options, func(o string) bool { return strings.EqualFold(o, text) }); i >= 0 {
		return options[i], true
	}
	// Compare the words first, so that an option that is a number matches itself.
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(options) {
		return options[n-1], true
	}
	return "", false
}

func newGrant(g inbox.StandingApproval) api.Grant {
	return api.Grant{ID: api.ID(g.ID), Agent: g.Agent, Tool: g.Action.Tool, Action: g.Action.Description, Item: api.ID(g.Item), CreatedAt: api.At(g.CreatedAt)}
}

func (s *Inbox) grants(r *http.Request) (any, error) {
	given, err := s.ledger.Inbox.StandingApprovals(r.Context())
	return convert(given, newGrant), err
}

func (s *Inbox) revoke(ctx context.Context, n int64) (api.Grant, error) {
	g, err := s.ledger.Inbox.RevokeApproval(ctx, n)
	return newGrant(g), err
}

func newLabel(l label.Label) api.Label {
	return api.Label{Kind: string(l.Kind), Place: l.Name, Label: l.Letter, Run: api.OptionalID(l.Run), At: api.At(l.At)}
}

func (s *Inbox) labels(r *http.Request) (any, error) {
	found, err := s.ledger.Labels.List(r.Context())
	return convert(found, newLabel), err
}

// clearLabel removes a label after an inspection by the owner. It clears a path and everything
// below it, or everything that an agent keeps.
func (s *Inbox) clearLabel(r *http.Request, ask api.ClearLabel) (any, error) {
	if ask.Label != label.TaintUntrusted && ask.Label != label.TaintPrivate || (ask.Agent != "") == filepath.IsAbs(ask.Path) {
		return nil, usage("a label A or B, and an agent or an absolute path are needed")
	}

	var places []label.Place
	if ask.Agent == "" {
		places = append(places, s.storage.PlaceOf(filepath.Clean(ask.Path)))
	} else {
		var err error
		if places, err = s.storage.Kept(ask.Agent); err != nil {
			return nil, err
		}
	}

	cleared, err := s.ledger.Labels.Clear(r.Context(), ask.Label, places...)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, s.notLabelled(r, ask)
	}
	return convert(cleared, newLabel), err
}

// notLabelled returns the reason why there is no label to remove. A label of a folder cannot be
// removed from a part of it.
func (s *Inbox) notLabelled(r *http.Request, ask api.ClearLabel) error {
	word := map[string]string{label.TaintUntrusted: "untrusted", label.TaintPrivate: "labelled private"}[ask.Label]
	if ask.Agent != "" {
		return usage("nothing that agent %s keeps is %s; see: rouse grants", ask.Agent, word)
	}

	all, err := s.ledger.Labels.List(r.Context())
	if err != nil {
		return err
	}
	for _, l := range all {
		if l.Kind == label.PlaceFile && l.Letter == ask.Label && fspath.Within(ask.Path, l.Name) {
			return usage("%s is %s because all of %s is, where a program of run %d may have written anything; name that folder", ask.Path, word, l.Name, l.Run)
		}
	}
	return usage("%s is not %s, and nothing below it; see: rouse grants", ask.Path, word)
}

// withLink adds the sign-in link to an item that asks for a sign-in. The link is not recorded.
func (s *Inbox) withLink(ctx context.Context, out api.Item, i inbox.Item) api.Item {
	link, err := s.signIns.SignInLink(ctx, i)
	out.Link = link
	if err != nil {
		out.LinkProblem = err.Error()
	}
	return out
}

// takeSignIn completes a sign-in with an answer, if an item asks for a sign-in.
func (s *Inbox) takeSignIn(ctx context.Context, i inbox.Item, pasted string) (taken bool, err error) {
	taken, err = s.signIns.AnswerSignIn(ctx, i, pasted)
	if err != nil && !errors.As(err, new(*api.Error)) {
		err = &api.Error{Status: http.StatusUnprocessableEntity, Message: err.Error()}
	}
	return taken, err
}
