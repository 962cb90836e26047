package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/jsonread"
	"rouse/internal/ledger"
	"rouse/internal/ledger/inbox"
	"rouse/internal/text"
)

func newShow(env *cli) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   "show RUN",
		Short: "Shows one run: trigger, attempts, steps, calls, outcome",
		RunE: showing(env, "/v1/runs/%s", func(s *session, d api.RunDetail) error {
			printDetail(s.out, d, s.mark(d.Run), s.now())
			return s.sayNoDaemon(d.Run)
		}),
	})
}

// printDetail prints all details of a run, with the mark of its outcome.
func printDetail(w io.Writer, d api.RunDetail, mark string, now time.Time) {
	fmt.Fprintf(w, "run %s of %s (agent %s)  %s\n", d.ID, jobName(d.Run), d.Agent, paint(w, mark))
	field(w, "trigger", text.OneLine(triggerText(d.Run)))
	if !d.ScheduledAt.IsZero() {
		field(w, "scheduled", local(d.ScheduledAt, now))
	}
	field(w, "queued", local(d.QueuedAt, now))
	field(w, "started", local(d.StartedAt, now))
	field(w, "finished", fmt.Sprintf("%s (took %s)", local(d.FinishedAt, now), runDuration(d.Run, now)))
	printWake(w, d.Run, now)
	field(w, "body", shorten(d.Body, 500))
	exit := string(d.Exit)
	if d.Exit != "" && d.Outcome == domain.OutcomeSuccess && !d.Verified {
		exit += ", not verified"
	}
	field(w, "exit", exit)
	field(w, "summary", text.OneLine(d.Summary))
	// The error of a failed program ends with the last lines of its output.
	field(w, "error", strings.ReplaceAll(text.Lines(d.Error), "\n", "\n            "))
	if d.Steps > 0 {
		field(w, "steps", fmt.Sprintf("%d, with %s", d.Steps, text.Plural(d.Calls, "call")))
	}
	if d.TokensIn+d.TokensOut > 0 {
		part := ""
		if d.EstimatedTokens > 0 {
			part = estimated(fmt.Sprint(d.EstimatedTokens))
		}
		field(w, "tokens", fmt.Sprintf("%d in, %d out%s", d.TokensIn, d.TokensOut, part))
	}
	if d.CostUSD > 0 {
		part := ""
		switch program := d.Program(); {
		case d.EstimatedUSD > 0:
			part = estimated(dollars(d.EstimatedUSD))
		case program != "":
			part = ", as " + text.OneLine(program) + " says"
		}
		field(w, "cost", dollars(d.CostUSD)+part)
	}
	field(w, "taint", taintText(d.Taint))
	if d.Tier != "" {
		field(w, "confined", fmt.Sprintf("its programs ran on tier %s", d.Tier))
	}
	if d.Workspace != "" {
		field(w, "workspace", fmt.Sprintf("%s; rouse workspaces show %[1]s", d.Workspace))
	}
	if d.Checkout != nil {
		printCheckout(w, *d.Checkout, now)
	}
	printArtifacts(w, d)
	printAsked(w, d, now)

	// If all token counts are estimates, the line above already says so.
	estimates := d.EstimatedTokens < d.TokensIn+d.TokensOut
	for _, a := range d.Attempts {
		fmt.Fprintf(w, "attempt %d  %s  %s–%s", a.Number, a.State, local(a.StartedAt, now), local(a.FinishedAt, now))
		if a.Node != "" {
			fmt.Fprintf(w, "  on %s", text.OneLine(a.Node))
		}
		if a.Error != "" {
			fmt.Fprintf(w, "  %s", text.OneLine(a.Error))
		}

		fmt.Fprintln(w)
		// Step numbers are per attempt.
		for _, st := range d.StepsDetail {
			if st.Attempt == a.Number {
				printStep(w, st, "  ", estimates)
			}
		}
	}
}

// kindWords names the kinds of inbox items in the details of a run.
var kindWords = map[string]string{inbox.KindInput: "asked", inbox.KindApproval: "approval", inbox.KindRecovery: "cut off", inbox.KindPause: "paused", inbox.KindInfo: "informed"}

// taintText describes the taint of a run (docs/dev/security-tests.md).
func taintText(letters []string) string {
	words := map[string]string{"A": "untrusted content (A)", "B": "private data (B)", "C": "an effect beyond the host (C)"}
	var out []string
	for _, l := range letters {
		out = append(out, words[l])
	}
	return strings.Join(out, ", ")
}

// printAsked prints the questions and messages of a run, and the answers.
func printAsked(w io.Writer, d api.RunDetail, now time.Time) {
	for _, i := range d.Inbox {
		first, _, _ := strings.Cut(i.Message, "\n")
		became := i.State
		switch i.State {
		case inbox.ItemOpen:
			became = answerHint(i)
		case inbox.ItemAnswered:
			became = "answered: " + shorten(strings.TrimSuffix(i.Answer+": "+i.Reason, ": "), 120)
		}

		fmt.Fprintf(w, "  %-9s %s\n", kindWords[i.Kind], shorten(readable(first, now.Location()), 200))
		if i.Kind == inbox.KindApproval {
			printAction(w, i.Action)
		}

		fmt.Fprintf(w, "            %s\n", became)
	}
}

// printWake prints the reason for a wake, and the agent or user that planned it.
func printWake(w io.Writer, r api.Run, now time.Time) {
	var d ledger.TriggerDetail
	// triggerText prints an unreadable detail.
	if json.Unmarshal(r.TriggerDetail, &d) != nil || d.Wake == nil {
		return
	}

	field(w, "planned", fmt.Sprintf("for %s, on %s", local(api.At(d.Wake.Planned), now), local(api.At(d.Wake.Asked), now)))
	if d.Wake.Depth > 0 {
		field(w, "chain", fmt.Sprintf("wake %d in a row that the agent planned", d.Wake.Depth))
	}
	field(w, "told", shorten(d.Wake.Instructions, 500))
}

// triggerText describes the trigger of a run.
func triggerText(r api.Run) string {
	var d ledger.TriggerDetail
	if err := json.Unmarshal(r.TriggerDetail, &d); err != nil {
		return fmt.Sprintf("%s %s", r.Trigger, r.TriggerDetail)
	}
	if said := detailText(d); said != "" {
		return string(r.Trigger) + ": " + said
	}
	return string(r.Trigger)
}

func detailText(d ledger.TriggerDetail) string {
	switch {
	case d.Wake != nil:
		by := api.Wake{ScheduledBy: d.Wake.ScheduledBy, Job: d.Wake.Job}
		if d.Wake.AskedBy != 0 {
			by.Run = fmt.Sprint(d.Wake.AskedBy)
		}
		return "a wake that was planned by " + plannedBy(by)
	case d.File != nil:
		return fmt.Sprintf("%s (%d bytes)", d.File.Path, d.File.Size)
	case len(d.Files) > 0:
		return filesText(d)
	case d.Folder != "":
		return folderText(d)
	case d.Webhook != nil:
		event := ""
		if d.Webhook.Event != "" {
			event = d.Webhook.Event + ", "
		}
		return fmt.Sprintf("%s (%sdelivery %s, %s)", d.Webhook.Path, event, d.Webhook.ID, text.Size(d.Webhook.Bytes))
	case d.After != nil:
		return fmt.Sprintf("run %d of the job %s ended (%s)", d.After.Run, d.After.Job, d.After.Outcome)
	case d.Prompt != "":
		return shorten(d.Prompt, 120)
	case d.Tool != "":
		return "a call of " + d.Tool
	case d.Skill != "":
		said := "the skill " + d.Skill
		switch {
		case d.Uninstall:
			said = "before the removal of " + said
		case d.DryRun:
			said = "a dry run of " + said
		}
		if d.StartedBy != nil {
			said += fmt.Sprintf(", which run %d called", d.StartedBy.Run)
		}
		return said
	case len(d.Input) > 0:
		var pairs []string
		for _, k := range slices.Sorted(maps.Keys(d.Input)) {
			pairs = append(pairs, k+"="+d.Input[k])
		}
		return strings.Join(pairs, " ")
	}
	return d.Source
}

// filesText returns the names of the first files of a batch.
func filesText(d ledger.TriggerDetail) string {
	const most = 5
	names := make([]string, len(d.Files))
	for i, f := range d.Files {
		names[i] = f.Path
	}
	words := text.Plural(len(names), "file") + ": " + text.List(names, most)
	if d.More > 0 {
		words += fmt.Sprintf("; %d more were ready for a later run", d.More)
	}
	return words
}

// folderText returns the number of runs of a folder and the latest changes in it.
func folderText(d ledger.TriggerDetail) string {
	text := fmt.Sprintf("run %d of the folder %s", d.Round, d.Folder)
	if c := d.Changes; c != nil {
		text += fmt.Sprintf(": %d added, %d removed, %d modified", len(c.Added), len(c.Removed), len(c.Modified))
		if c.More > 0 {
			text += fmt.Sprintf(" and %d more changes", c.More)
		}
	}
	return text
}

// printStep prints a step. If estimates is true, it marks estimated token counts. Below a call it
// prints the steps that answered the call.
func printStep(w io.Writer, st api.Step, margin string, estimates bool) {
	fmt.Fprintf(w, "%sstep %d", margin, st.Step)
	if st.Model != "" {
		fmt.Fprintf(w, " (%s)", st.Model)
	}

	if st.Text != "" {
		fmt.Fprintf(w, "  %s", shorten(st.Text, 160))
	}
	if estimates && st.EstimatedTokens > 0 {
		fmt.Fprintf(w, "  (%s of it estimated)", text.Plural(st.EstimatedTokens, "token"))
	}
	fmt.Fprintln(w)
	for _, n := range st.Notices {
		fmt.Fprintf(w, "%s  %s\n", margin, shorten(n, 400))
	}

	for _, c := range st.Calls {
		mark := "ok"
		if !c.OK {
			mark = strings.TrimSpace(string(c.State) + " " + c.Kind)
		} else if c.State == domain.CallReplayed {
			// An earlier attempt made the call. The reader must not count its effect twice.
			mark = string(c.State)
		}

		fmt.Fprintf(w, "%s  %s %s → %s %s (%d ms)\n", margin, c.Tool, shorten(jsonread.OneLine(c.Args), 120), mark, shorten(compact(c.Result), 160), c.DurationMS)
		var e struct {
			Warnings []string `json:"warnings"` // next to the result
		}
		_ = json.Unmarshal(c.Envelope, &e) // a call that was not made has no envelope
		for _, warning := range e.Warnings {
			fmt.Fprintf(w, "%s    %s\n", margin, shorten(warning, 400))
		}
		for _, within := range c.StepsDetail {
			printStep(w, within, margin+"    ", estimates)
		}
	}
}

// compact formats a result, without quotes if it is a string.
func compact(raw json.RawMessage) string {
	var plain string
	// Print a string without quotes and escapes. shorten later puts it on one line.
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	return jsonread.OneLine(raw)
}
