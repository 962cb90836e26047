package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/form"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

func newInbox(env *cli) *cobra.Command {
	var closed bool
	var wanted pages
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Lists what waits for you: questions of runs, actions that need your approval, and calls that were cut off",
		RunE: env.with(toRead, func(s *session, _ []string) error {
			if closed {
				items, err := getPages(s, "/v1/inbox/closed", url.Values{}, wanted, func(i api.Item) string { return i.ID })
				if err != nil {
					return err
				}
				return jsonOr(s.cmd, items, func() error { return printClosed(s.out, items, s.now()) })
			}
			var items []api.Item
			return s.show("/v1/inbox", nil, &items, func() error { return printInbox(s, items) })
		}),
	}

	cmd.Flags().BoolVar(&closed, "closed", false, "list what was answered, or waits no more, the newest first")
	wanted.flags(cmd.Flags(), 50, "item", "with --closed: ")
	return withJSON(cmd)
}

func printInbox(s *session, items []api.Item) error {
	var branches []api.Checkout
	if err := s.get("/v1/checkouts", nil, &branches); err != nil {
		return err
	}
	if len(items)+len(branches) == 0 {
		return sayf(s.out, "nothing waits for you\n")
	}

	for _, i := range items {
		printItem(s.out, i, s.now())
	}
	for _, c := range branches {
		fmt.Fprintf(s.out, "branch of run %s\n", c.Run)
		printCheckout(s.out, c, s.now())
	}
	return nil
}

// printClosed lists closed items with their results.
func printClosed(w io.Writer, items []api.Item, now time.Time) error {
	return list(w, items, "nothing that waited for you has been closed", "ITEM KIND RUN SINCE BECAME TITLE", func(i api.Item) []string {
		became := i.State
		if i.Answer != "" {
			became += ": " + shorten(i.Answer, 80)
		}
		return []string{i.ID, i.Kind, cmp.Or(i.Run, i.Agent), when(i.CreatedAt, now), became, shorten(i.Title, 80)}
	})
}

// printItem prints an item: its source, its message, and how to answer it. Lines of the message are
// indented, so that a line cannot look like another item.
func printItem(w io.Writer, i api.Item, now time.Time) {
	asks, left := "", ""
	if i.Run != "" {
		asks = "run " + i.Run
		if n := len(i.Runs) - 1; n > 0 {
			asks += fmt.Sprintf(" and %d more wait for the same", n)
		}
		asks += ", "
	}
	if !i.ExpiresAt.IsZero() {
		left = ", " + timeLeft(i.ExpiresAt.Sub(now))
	}
	fmt.Fprintf(w, "%s  %s (%s%s%s)\n", i.ID, text.OneLine(i.Title), asks, when(i.CreatedAt, now), left)
	// Models write the questions, so remove control characters from each line.
	for line := range strings.Lines(i.Message) {
		fmt.Fprintf(w, "    %s\n", text.OneLine(readable(line, now.Location())))
	}

	if i.Link != "" {
		fmt.Fprintf(w, "    %s\n", text.OneLine(i.Link))
	}
	if i.LinkProblem != "" {
		fmt.Fprintf(w, "    nobody can sign in now: %s\n", text.OneLine(i.LinkProblem))
	}
	if i.Kind == inbox.KindInput {
		for n, o := range i.Options {
			fmt.Fprintf(w, "    %d. %s\n", n+1, text.OneLine(o))
		}
	}
	if len(i.InputSchema) > 0 {
		printForm(w, i)
	}
	if i.Kind == inbox.KindApproval {
		printAction(w, i.Action)
	}

	// Without a daemon an expired item is still listed, but rouse would refuse an answer.
	hint := answerHint(i)
	if !i.ExpiresAt.IsZero() && !now.Before(i.ExpiresAt.Time) {
		hint = "nobody answered in time; its run ends when a daemon starts: rouse serve"
	}
	fmt.Fprintf(w, "    %s\n", hint)
}

// timeLeft returns the time until an item expires, rounded.
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

// printAction prints an action as it would be executed. It escapes cursor movements, text direction
// marks and characters without width, because they could hide a part of the action.
func printAction(w io.Writer, action string) {
	for line := range strings.Lines(action) {
		fmt.Fprintf(w, "    | %s\n", text.Visible(strings.TrimSuffix(line, "\n")))
	}
}

// answerHint returns the command that answers an item.
func answerHint(i api.Item) string {
	with, all := `"…"`, ""
	if len(i.Runs) > 1 {
		all = " [--all]"
	}
	switch {
	case len(i.InputSchema) > 0:
		return fmt.Sprintf("rouse answer %s (asks for each value), or rouse answer %[1]s '{…}'", i.ID)
	case i.Kind == inbox.KindApproval && slices.Contains(i.Options, inbox.ApprovalAlways):
		return fmt.Sprintf("rouse approve %s [--always]%s, or rouse deny %[1]s [REASON]", i.ID, all)
	case i.Kind == inbox.KindApproval:
		return fmt.Sprintf("rouse approve %s%s, or rouse deny %[1]s [REASON]", i.ID, all)
	case i.Kind != inbox.KindInput:
		with = strings.Join(i.Options, "|")
	case len(i.Options) > 0 && i.Multiple:
		with = "1,2"
	case len(i.Options) > 0:
		with = "1"
	}

	return fmt.Sprintf("rouse answer %s %s%s", i.ID, with, all)
}

func newAnswer(env *cli) *cobra.Command {
	var all bool
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return fillForm(cmd, env, args[0], all)
			}
			return sendAnswer(cmd, env, args[0], api.Answer{Text: strings.Join(args[1:], " "), All: all})
		},
	}

	cmd.Flags().BoolVar(&all, "all", false, "answer every run that asks the same")
	return withJSON(cmd)
}

// sendAnswer answers an item and prints the new state of its run.
func sendAnswer(cmd *cobra.Command, env *cli, item string, answer api.Answer) error {
	s, err := env.open(cmd, toRead)
	if err != nil {
		return err
	}
	defer s.close()

	var items []api.Item // to report the other runs that wait for the same answer
	if err := s.get("/v1/inbox", nil, &items); err != nil {
		return err
	}
	var r api.Run
	return s.send("/v1/inbox/"+item+"/answer", answer, &r, func() error {
		more, note := 0, ""
		if at := slices.IndexFunc(items, func(i api.Item) bool { return i.ID == item }); at >= 0 {
			if more, note, err = joinedRuns(s, items[at], r.ID); err != nil {
				return err
			}
		}
		said := fmt.Sprintf("run %s goes on", r.ID)
		if more > 0 {
			said = fmt.Sprintf("run %s and %d more go on", r.ID, more)
		}

		switch {
		case r.ID == "": // the item does not belong to a run
			said = fmt.Sprintf("the database of %s goes on with this ledger", r.Agent)
		case r.State == domain.StateFinished:
			said = fmt.Sprintf("noted; run %s ended: %s", r.ID, r.Outcome)
		case r.WaitingFor != domain.WaitResume:
			said = fmt.Sprintf("noted; run %s is %s", r.ID, r.State)
		case !s.daemon:
			said += " when a daemon starts: rouse serve"
		}
		return sayf(s.out, "%s%s\n", said, note)
	})
}

// joinedRuns returns how many other runs of an item continue, and a note about the rest.
func joinedRuns(s *session, i api.Item, answered string) (more int, note string, err error) {
	skipped, waiting := 0, 0
	for _, id := range i.Runs {
		if id == answered {
			continue
		}
		var r api.Run
		if err := s.get("/v1/runs/"+id, nil, &r); err != nil {
			return 0, "", err
		}
		switch {
		case r.Outcome == domain.OutcomeSkipped:
			skipped++
		case r.WaitingFor == domain.WaitInput, r.WaitingFor == domain.WaitApproval:
			waiting++
		default:
			more++
		}
	}
	if skipped > 0 {
		note += fmt.Sprintf("; %s that asked the same ended as skipped", text.Plural(skipped, "run"))
	}
	if waiting > 0 {
		note += fmt.Sprintf("; %s still ask the same: rouse inbox", text.Plural(waiting, "run"))
	}
	return more, note, nil
}

func newApprove(env *cli) *cobra.Command {
	var always, all bool
	cmd := &cobra.Command{
		Use:   "approve ITEM",
		Short: "Approves what a run asks for; it does exactly that, once",
		Long: `Approves what a run asks for, as "rouse inbox" shows it. The run goes on and does exactly
that, once: a call that would do something else by then needs another approval, also when a
file that it names holds something else. With --always the agent may do the same, with the
same files, in later runs too, until you revoke that with "rouse grants revoke"; installing
software needs an approval each time all the same. The definition of a job is always approved
permanently, as it stands.

If several runs wait for the same, one of them goes on. The other scheduled runs end as skipped;
runs of files, webhooks and other triggers wait for an approval of their own. With --all every
one of them goes on.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer := api.Answer{Text: inbox.ApprovalOnce, Kind: inbox.KindApproval, All: all}
			if always {
				answer.Text = inbox.ApprovalAlways
			}
			return sendAnswer(cmd, env, args[0], answer)
		},
	}

	cmd.Flags().BoolVar(&always, "always", false, "also in later runs of the agent, until you revoke it")
	cmd.Flags().BoolVar(&all, "all", false, "release every run that waits for the same")
	return withJSON(cmd)
}

func newDeny(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "deny ITEM [REASON]",
		Short: "Denies what a run asks for, and gives the agent the reason",
		Long: `Denies what a run asks for. The run goes on without it and may not do it later either; its
agent sees the reason. A run that was blocked by the definition of its job ends.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return sendAnswer(cmd, env, args[0], api.Answer{Text: inbox.ApprovalDeny, Reason: strings.Join(args[1:], " "), Kind: inbox.KindApproval})
		},
	})
}

// printForm lists the fields of an item.
func printForm(w io.Writer, i api.Item) {
	f, err := form.Parse(i.InputSchema)
	if err != nil {
		fmt.Fprintf(w, "    its input schema cannot be used: %s\n", text.OneLine(err.Error()))
		return
	}

	for _, one := range f.Fields() {
		fmt.Fprintf(w, "    %s%s\n", fieldText(one), aboutField(one))
	}
}

// fieldText returns the name of a field and its values: "nights (whole number, default 2)".
func fieldText(f form.Field) string {
	kind := string(f.Kind)
	if f.Kind == form.List {
		kind = "texts, with commas between"
	}
	if len(f.Enum) > 0 {
		var values []string
		for n, v := range f.Enum {
			values = append(values, fmt.Sprintf("%d. %s", n+1, form.Plain(v)))
		}
		kind = strings.Join(values, ", ")
	}

	switch {
	case f.Default != nil:
		kind += ", default " + form.Plain(f.Default)
	case !f.Required:
		kind += ", may be left out"
	}

	// Models and skills write the schemas, so keep the text on one line.
	return text.OneLine(fmt.Sprintf("%s (%s)", fieldName(f), kind))
}

func fieldName(f form.Field) string {
	if len(f.Path) == 0 {
		return "answer"
	}
	return f.Name()
}

// aboutField returns the title and the description of a field, or "" if it has neither.
func aboutField(f form.Field) string {
	var out string
	for _, s := range []string{f.Title, f.Description} {
		if s = shorten(s, 300); s != "" {
			out += ": " + s
		}
	}
	return out
}

// fillForm asks on a terminal for each value of the answer.
func fillForm(cmd *cobra.Command, env *cli, item string, all bool) error {
	s, err := env.open(cmd, toRead)
	if err != nil {
		return err
	}
	var items []api.Item
	err = s.get("/v1/inbox", nil, &items)
	s.close() // an open session would lock the home while the user types
	if err != nil {
		return err
	}

	d := dialogueOf(cmd, "the answer was broken off, and nothing was sent")
	n := slices.IndexFunc(items, func(i api.Item) bool { return i.ID == item })
	switch {
	case n < 0:
		return usagef("nothing with the number %s waits for an answer; see: rouse inbox", item)
	case len(items[n].InputSchema) == 0:
		return usagef("give the answer: %s", answerHint(items[n]))
	case d == nil:
		return usagef("give the answer as JSON, or answer on a terminal: rouse answer %s '{…}'; see: rouse inbox", item)
	}

	f, err := form.Parse(items[n].InputSchema)
	if err != nil {
		return fmt.Errorf("inbox item %s cannot be answered: %w", item, err)
	}
	for line := range strings.Lines(items[n].Message) {
		fmt.Fprintln(d.out, text.OneLine(line))
	}

	values := map[string]json.RawMessage{}
	for _, one := range f.Fields() {
		if about := strings.TrimPrefix(aboutField(one), ": "); about != "" {
			fmt.Fprintln(d.out, about)
		}
		d.ask(fieldText(one), "", func(answer string) (err error) {
			value := one.Default
			switch {
			case answer != "":
				value, err = one.Value(answer)
			case one.Default == nil && one.Required:
				return errNeeded
			}
			if value != nil {
				values[one.Name()] = value
			}
			return err
		})
		if d.err != nil {
			return d.err
		}
	}
	answer, err := f.Assemble(values)
	if err != nil {
		return err
	}
	return sendAnswer(cmd, env, item, api.Answer{Text: string(answer), Kind: inbox.KindInput, All: all})
}
