package control

import (
	"context"
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"rouse/agent/loop/memory"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger"
	"rouse/internal/text"
)

//go:embed todo.md
var todoText string

//go:embed complete.md
var completeText string

//go:embed notify.md
var notifyText string

// The specs of the tools.
var (
	todoSpec = tool.Spec{
		Name: "todo", Description: todoText, Effect: domain.EffectRead, Class: tool.ClassPlan, Scope: tool.ScopeRun, Writes: tool.WritesNothing,
		Example: `{"markdown":"- [x] read the statement\n- [ ] write the report"}`, Args: reflect.TypeFor[todoArgs](), OnDemand: true,
	}
	completeSpec = tool.Spec{
		Name: "complete", Description: completeText, Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing,
		Example: `{"summary":"Wrote the report of the week to out/report.md."}`, Args: reflect.TypeFor[completeArgs](), Ends: true, Enum: map[string][]string{"outcome": {"success", "nothing", "partial"}},
	}
	// A repeated call has no further effect, because the outbox accepts each key once.
	notifySpec = tool.Spec{
		Name: "notify", Description: notifyText, Effect: domain.EffectDatabase, Class: tool.ClassOther, Scope: tool.ScopeAgent, Writes: tool.WritesNotice,
		Example: `{"title":"3 expenses imported","body":"Most went to food."}`, Args: reflect.TypeFor[notifyArgs](),
	}
	clarifySpec = tool.Spec{
		Name: "clarify", Description: clarifyText, Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeRun, Writes: tool.WritesNothing,
		Example: `{"question":"Which account is GLS?","options":["Girokonto","Tagesgeld"]}`, Args: reflect.TypeFor[clarifyArgs](), Requires: tool.RequiresModel, Ends: true, Waits: true,
	}
)

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{todoSpec, completeSpec, notifySpec, clarifySpec} }

// Options configures the tools of one run.
type Options struct {
	Ledger   *ledger.Ledger
	Channels []string // channels that a call of notify may name
	Default  []string // channels of a notice without a channel
	// CanDeliver reports whether a channel can deliver now (yes, no, unknown), and why. Optional.
	CanDeliver func(ctx context.Context, channel string) (can, why string)
	// Board holds the todo list. If nil, Tools creates one.
	Board  *memory.Board
	Redact func(text string) string // removes secrets from notices; optional
	// Views lists the agent's saved views, which a notice may link to. Nil if the agent has no
	// database.
	Views func(context.Context) ([]string, error)
}

func (o Options) views(ctx context.Context) ([]string, error) {
	if o.Views == nil {
		return nil, nil
	}
	return o.Views(ctx)
}

// Tools returns the tools of one run, except clarify.
func Tools(o Options) ([]tool.Tool, error) {
	list := checklist{o.Board}
	if list.board == nil {
		list.board = &memory.Board{}
	}

	todo, err := tool.Define(todoSpec, list.replace)
	if err != nil {
		return nil, err
	}

	complete, err := tool.Define(completeSpec, list.complete)
	if err != nil {
		return nil, err
	}

	notify, err := tool.Define(notifySpec, o.notify)
	if err != nil {
		return nil, err
	}

	return []tool.Tool{todo, complete, notify}, nil
}

// checklist is the todo list of a run. It is stored on the run's board.
type checklist struct{ board *memory.Board }

type todoArgs struct {
	Markdown string `json:"markdown" jsonschema:"the whole list, one item a line: - [ ] open, - [x] done"`
}

type todoResult struct {
	Items int `json:"items"`
	Done  int `json:"done"`
	Open  int `json:"open"`
}

// replace replaces the whole list.
func (l checklist) replace(_ context.Context, _ tool.Invocation, a todoArgs) (tool.Envelope, error) {
	if strings.TrimSpace(a.Markdown) == "" {
		return tool.Failure(tool.KindInvalidArgs, "the list is empty").WithField("markdown", "lines like - [ ] read the file"), nil
	}

	items := memory.ParseItems(a.Markdown)
	l.board.SetItems(items)
	res := todoResult{Items: len(items), Open: l.board.OpenItems()}
	res.Done = res.Items - res.Open
	if len(items) == 0 {
		return tool.Success(res, "no line is an item; items look like - [ ] read the file"), nil
	}

	return tool.Success(res), nil
}

type completeArgs struct {
	Summary string         `json:"summary" jsonschema:"what was done and what came of it, in one or more sentences"`
	Outcome domain.Outcome `json:"outcome,omitempty" jsonschema:"nothing: there was nothing to do; partial: some of it is missing"`
}

type completeResult struct {
	Summary string         `json:"summary"`
	Outcome domain.Outcome `json:"outcome"`
}

// complete ends the run with a summary. It rejects summaries that report no result.
func (l checklist) complete(_ context.Context, _ tool.Invocation, a completeArgs) (tool.Envelope, error) {
	summary := strings.TrimSpace(a.Summary)
	if refused := checkSummary(summary, a.Outcome); refused != nil {
		return *refused, nil
	}

	res := completeResult{summary, a.Outcome}
	if res.Outcome == "" {
		res.Outcome = domain.OutcomeSuccess
	}

	// This is only a warning, because the model decides whether the open items still matter.
	if open := l.board.OpenItems(); open > 0 {
		return tool.Success(res, fmt.Sprintf("%d items of the todo list are open", open)), nil
	}

	return tool.Success(res), nil
}

type notifyArgs struct {
	Title   string `json:"title" jsonschema:"one line"`
	Body    string `json:"body,omitempty"`
	Channel string `json:"channel,omitempty" jsonschema:"default: those of the job"`
	ViewRef string `json:"view_ref,omitempty" jsonschema:"name of a saved view that the notice leads to"`
}

type notifyResult struct {
	Title  string   `json:"title"`
	Posted []posted `json:"posted"` // channels for which the notice is in the outbox
}

// posted is a channel for which a notice is in the outbox.
type posted struct {
	Channel    string `json:"channel"`
	CanDeliver string `json:"can_deliver"` // yes, no or unknown
	Why        string `json:"why,omitempty"`
}

// notify puts a notice into the outbox, and returns an error if the ledger fails. Without any
// channel the call succeeds with a warning, so that the run does not fail.
func (o Options) notify(ctx context.Context, in tool.Invocation, a notifyArgs) (tool.Envelope, error) {
	if o.Redact != nil {
		a.Title, a.Body = o.Redact(a.Title), o.Redact(a.Body)
	}

	// Collapse after redaction: collapsing could change a secret so that it is not recognized.
	title := text.Collapse(a.Title)
	if title == "" {
		return tool.Failure(tool.KindInvalidArgs, "the title is empty").WithField("title", "a line that says what happened"), nil
	}

	if a.ViewRef != "" {
		views, err := o.views(ctx)
		if err != nil {
			return tool.Envelope{}, err
		}
		if !slices.Contains(views, a.ViewRef) {
			return tool.Failure(tool.KindInvalidArgs, "%s", text.NoSuch("view", a.ViewRef, views)).WithField("view_ref", "the name of a saved view"), nil
		}
	}

	channels := o.Default
	if a.Channel != "" {
		channels = []string{a.Channel}
		if !slices.Contains(o.Channels, a.Channel) {
			return tool.Failure(tool.KindInvalidArgs, "there is no channel %q", a.Channel).WithField("channel", "one of "+strings.Join(o.Channels, ", ")), nil
		}
	}
	// Several agents may share a channel, so the title names the agent.
	title = signed(in.Agent, title)
	if len(channels) == 0 {
		return tool.Success(notifyResult{Title: title, Posted: []posted{}}, "no notification channel is configured: the call is recorded, but no notice is sent"), nil
	}

	var notices []ledger.Notice
	res := notifyResult{Title: title}
	for i, channel := range channels {
		// The outbox accepts each key once, so a repeated call does not send a second notice.
		key := fmt.Sprintf("call:%d:%s", in.Run, in.Key)
		if i > 0 {
			key += ":" + channel
		}
		notices = append(notices, ledger.Notice{Run: in.Run, Job: in.Job, Agent: in.Agent, Key: key, Channel: channel, Title: title, Body: a.Body, ViewRef: a.ViewRef})

		one := posted{Channel: channel, CanDeliver: "unknown"}
		if o.CanDeliver != nil {
			one.CanDeliver, one.Why = o.CanDeliver(ctx, channel)
		}
		res.Posted = append(res.Posted, one)
	}
	if err := o.Ledger.Outbox.Append(ctx, notices...); err != nil {
		return tool.Envelope{}, fmt.Errorf("the notice cannot be recorded: %w", err)
	}
	return tool.Success(res), nil
}

// signed prefixes the title with the agent's name, unless it already starts with the name.
func signed(agent, title string) string {
	if n := len(agent); n == 0 || len(title) >= n && strings.EqualFold(title[:n], agent) && (len(title) == n || !isWordByte(title[n])) {
		return title
	}
	return agent + ": " + title
}

// isWordByte reports whether a byte can be part of a name: a letter, a digit, an underscore, a
// hyphen or part of a non-ASCII letter.
func isWordByte(b byte) bool {
	return b >= 0x80 || b == '_' || b == '-' || unicode.IsLetter(rune(b)) || unicode.IsDigit(rune(b))
}
