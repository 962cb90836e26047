package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/agentdb/ledger"
	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

func newInbox(at *place) *cobra.Command {
	var asJSON, closed bool
	var wanted pages
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Lists what waits for you: questions of runs, actions that need your approval, and calls that were cut off",
		Args:  cobra.NoArgs,
		RunE: withSession(at.openToRead, func(cmd *cobra.Command, _ []string, s *session) error {
			var items []api.Item
			var err error
			if closed {
				items, err = getPages(cmd.Context(), s, "/v1/inbox/closed", url.Values{}, wanted, func(i api.Item) string { return i.ID })
			} else {
				err = s.Get(cmd.Context(), "/v1/inbox", nil, &items)
			}
			if err != nil {
				return err
			}
			switch {
			case asJSON:
				return printJSON(cmd.OutOrStdout(), items)
			case closed:
				return printClosed(cmd.OutOrStdout(), items, s.now())
			}

			var branches []api.Checkout
			if err := s.Get(cmd.Context(), "/v1/checkouts", nil, &branches); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if len(items)+len(branches) == 0 {
				return sayf(out, "nothing waits for you\n")
			}

			for _, i := range items {
				printItem(out, i, s.now())
			}
			for _, c := range branches {
				fmt.Fprintf(out, "branch of run %s\n", c.Run)
				printCheckout(out, c, s.now())
			}

			return nil
		}),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&closed, "closed", false, "list what was answered, or waits no more, the newest first")
	wanted.flags(cmd.Flags(), 50, "item", "with --closed: ")
	return cmd
}

// printClosed lists items with what became of them.
func printClosed(w io.Writer, items []api.Item, now time.Time) error {
	if len(items) == 0 {
		return sayf(w, "nothing that waited for you has been closed\n")
	}

	var rows [][]string
	for _, i := range items {
		became := i.State
		if i.Answer != "" {
			became += ": " + shorten(i.Answer, 80)
		}
		rows = append(rows, []string{i.ID, i.Kind, cmp.Or(i.Run, i.Agent), when(i.CreatedAt, now), became, shorten(i.Title, 80)})
	}
	return table(w, "ITEM KIND RUN SINCE BECAME TITLE", rows)
}

// printItem writes an item as a person reads it: who asks, what, and how to answer. Lines of
// the message stay lines, indented, so that none of them looks like another item.
func printItem(w io.Writer, i api.Item, now time.Time) {
	left := ""
	if !i.ExpiresAt.IsZero() {
		left = ", " + timeLeft(i.ExpiresAt.Sub(now))
	}

	others := ""
	if n := len(i.Runs) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more wait for the same", n)
	}

	asks := ""
	if i.Run != "" {
		asks = "run " + i.Run + others + ", "
	}

	fmt.Fprintf(w, "%s  %s (%s%s%s)\n", i.ID, text.OneLine(i.Title), asks, when(i.CreatedAt, now), left)
	// Questions are written by models: no line may carry control characters to the terminal.
	for line := range strings.Lines(i.Message) {
		fmt.Fprintf(w, "    %s\n", text.OneLine(readable(line, now.Location())))
	}

	if i.Link != "" {
		fmt.Fprintf(w, "    %s\n", text.OneLine(i.Link))
	}
	if i.LinkProblem != "" {
		fmt.Fprintf(w, "    nobody can sign in now: %s\n", text.OneLine(i.LinkProblem))
	}

	if i.Kind == ledger.KindInput {
		for n, o := range i.Options {
			fmt.Fprintf(w, "    %d. %s\n", n+1, text.OneLine(o))
		}
	}

	if len(i.InputSchema) > 0 {
		printForm(w, i)
	}

	if i.Kind == ledger.KindApproval {
		printAction(w, i.Action)
	}

	// The daemon ends a run whose time is over. Where none runs the item is still listed, and an
	// answer would be refused.
	hint := answerHint(i)
	if !i.ExpiresAt.IsZero() && !now.Before(i.ExpiresAt.Time) {
		hint = "nobody answered in time; its run ends when a daemon starts: rouse serve"
	}

	fmt.Fprintf(w, "    %s\n", hint)
}

// timeLeft is how long an item can still be answered, as coarsely as it matters.
func timeLeft(d time.Duration) string {
	switch {
	case d <= 0:
		return "over time"
	case d < time.Minute:
		return "less than a minute left"
	case d < 2*time.Hour:
		return text.Plural(int(d/time.Minute), "minute") + " left"
	}
	return text.Plural(int(d.Round(time.Hour)/time.Hour), "hour") + " left"
}

// printAction writes an action as it would be done. Nothing in it can hide what it is: what
// moves the cursor, turns the text around or has no width is written out.
func printAction(w io.Writer, action string) {
	for line := range strings.Lines(action) {
		fmt.Fprintf(w, "    | %s\n", text.Visible(strings.TrimSuffix(line, "\n")))
	}
}

// answerHint is the command that answers an item.
func answerHint(i api.Item) string {
	with, all := `"…"`, ""
	if len(i.Runs) > 1 {
		all = " [--all]"
	}
	switch {
	case len(i.InputSchema) > 0:
		return fmt.Sprintf("rouse answer %s (asks for each value), or rouse answer %[1]s '{…}'", i.ID)
	case i.Kind == ledger.KindApproval && slices.Contains(i.Options, ledger.ApprovalAlways):
		return fmt.Sprintf("rouse approve %s [--always]%s, or rouse deny %[1]s [REASON]", i.ID, all)
	case i.Kind == ledger.KindApproval:
		return fmt.Sprintf("rouse approve %s%s, or rouse deny %[1]s [REASON]", i.ID, all)
	case i.Kind != ledger.KindInput:
		with = strings.Join(i.Options, "|")
	case len(i.Options) > 0 && i.Multiple:
		with = "1,2"
	case len(i.Options) > 0:
		with = "1"
	}

	return fmt.Sprintf("rouse answer %s %s%s", i.ID, with, all)
}

func newAnswer(at *place) *cobra.Command {
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "answer ITEM [TEXT]",
		Short: "Answers an item of the inbox; its run goes on",
		Long: `Answers an item of the inbox. To a question the text may be one of the options, its number,
several of them with commas between where several may be chosen, or an answer of your own.
The run that asked goes on with it, as the same run. A question for several values takes them as
JSON; without a text it asks you for each of them, on a terminal.

A run of a playbook that was cut off during a call which may have changed something asks what
should become of that call: done (it took effect, go on after it), again (make it again), skip
(go on without it) or stop (end the run). An item that only informs you is dismissed with: seen.
An agent whose database holds runs that the ledger does not know waits for: adopt.
An action that needs your approval takes approve, always or deny; see rouse approve --help.
To a skill that asks you to sign in give the address at which your browser ended, in quotes.

If several scheduled runs ask the same, one of them goes on and the others end as skipped. With
--all every one of them goes on with your answer.`,
		Args: cobra.MinimumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return fillForm(cmd, at, args[0], all, asJSON)
			}
			return sendAnswer(cmd, at, args[0], api.Answer{Text: strings.Join(args[1:], " "), All: all}, asJSON)
		}),
	}

	cmd.Flags().BoolVar(&all, "all", false, "answer every run that asks the same")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// sendAnswer answers an item, and says what becomes of its run.
func sendAnswer(cmd *cobra.Command, at *place, item string, answer api.Answer, asJSON bool) error {
	s, err := at.openToRead(cmd.Context())
	if err != nil {
		return err
	}
	defer s.close()

	var items []api.Item // to say what becomes of other runs that ask the same
	if err := s.Get(cmd.Context(), "/v1/inbox", nil, &items); err != nil {
		return err
	}

	var r api.Run
	if done, err := s.send(cmd, asJSON, "/v1/inbox/"+item+"/answer", answer, &r); done || err != nil {
		return err
	}

	text, note := fmt.Sprintf("run %s goes on", r.ID), ""
	if at := slices.IndexFunc(items, func(i api.Item) bool { return i.ID == item }); at >= 0 {
		others, err := joinedRuns(cmd.Context(), s, items[at], r.ID)
		if err != nil {
			return err
		}
		if others.answered > 0 {
			text = fmt.Sprintf("run %s and %d more go on", r.ID, others.answered)
		}
		note = others.String()
	}

	switch {
	case r.ID == "": // of an item that is no run's
		text = fmt.Sprintf("the database of %s goes on with this ledger", r.Agent)
	case r.State == domain.StateFinished:
		text = fmt.Sprintf("noted; run %s ended: %s", r.ID, r.Outcome)
	case r.WaitingFor != domain.WaitResume:
		text = fmt.Sprintf("noted; run %s is %s", r.ID, r.State)
	case !s.daemon:
		text += " when a daemon starts: rouse serve"
	}

	return sayf(cmd.OutOrStdout(), "%s\n", text+note)
}

// joined counts the other runs that asked the same, by what an answer made of them.
type joined struct{ answered, skipped, waiting int }

func (j joined) String() string {
	out := ""
	if j.skipped > 0 {
		out += fmt.Sprintf("; %s that asked the same ended as skipped", text.Plural(j.skipped, "run"))
	}
	if j.waiting > 0 {
		out += fmt.Sprintf("; %s still ask the same: rouse inbox", text.Plural(j.waiting, "run"))
	}
	return out
}

// joinedRuns reads the runs of an item other than the answered one.
func joinedRuns(ctx context.Context, s *session, i api.Item, answered string) (j joined, err error) {
	for _, id := range i.Runs {
		if id == answered {
			continue
		}
		var r api.Run
		if err := s.Get(ctx, "/v1/runs/"+id, nil, &r); err != nil {
			return j, err
		}
		switch {
		case r.Outcome == domain.OutcomeSkipped:
			j.skipped++
		case r.WaitingFor == domain.WaitInput, r.WaitingFor == domain.WaitApproval:
			j.waiting++
		default:
			j.answered++
		}
	}
	return j, nil
}
