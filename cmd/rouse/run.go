package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type runOptions struct {
	agent, prompt, file string
	session             string
	input               []string
	wait, json, fresh   bool
	again               bool
	quiet               bool
}

func newRun(at *place) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run JOB | run --agent AGENT --prompt TEXT",
		Short: "Fires a job now, exactly as a trigger would, or runs an ad-hoc prompt",
		Long: `Fires a job now, exactly as a trigger would, or runs an ad-hoc prompt.

With -q only the result is printed, for scripts: what the run answered on standard output, what went
wrong on standard error.

With --wait the run's events are printed as they happen, also what its model writes, and the exit code says how it
ended: 0 for success, nothing and partial, else 1. A run that does not start says for what it
waits, and ends the waiting where somebody has to mend something first. With no daemon the run
is executed by this command, which then always waits; meanwhile other commands can look at it
(show, logs -f), answer it and cancel it.`,
		Example: `  rouse run morning-report --wait
  rouse run morning-report -q > report.txt
  rouse run inbox --file statements.csv
  rouse run inbox --file statements.csv --again
  rouse run --agent bookkeeper --prompt "How much did we spend on food?" --wait
  rouse run --agent bookkeeper --session taxes --prompt "And in May?" --wait`,
		Args: cobra.MaximumNArgs(1),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			fire, err := o.fire(args)
			if err != nil {
				return err
			}
			return fireAndFollow(cmd, at, fire, o)
		}),
	}

	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "`name` of the agent for --prompt")
	f.StringVar(&o.prompt, "prompt", "", "`text` to run instead of a job")
	f.StringVar(&o.file, "file", "", "`path` of a file, processed as if it had been dropped into the job's folder")
	f.BoolVar(&o.again, "again", false, "with --file: run even if the same content was already processed")
	f.StringArrayVar(&o.input, "input", nil, "`key=value` for .Input in the job's templates (repeatable)")
	f.StringVar(&o.session, "session", "", "`key` of a session: the prompt goes on from those of the same key before it")
	f.BoolVar(&o.fresh, "fresh", false, "begin the session again: that of --session, or of a job with session: keep")
	f.BoolVar(&o.wait, "wait", false, "follow the run and exit by its outcome")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "wait, and print only the result of the run")
	f.BoolVar(&o.json, "json", false, "print the run as JSON")

	return cmd
}

// fire is the request that the command line means.
func (o runOptions) fire(args []string) (api.RunRequest, error) {
	f := api.RunRequest{Agent: o.agent, Prompt: o.prompt, Session: o.session, Fresh: o.fresh}
	switch {
	case len(args) == 1 && o.prompt != "":
		return f, usagef("give a job or --prompt, not both")
	case len(args) == 1 && o.agent != "":
		return f, usagef("--agent goes with --prompt; a job has its own agent")
	case len(args) == 1:
		f.Job = args[0]
	case o.prompt == "" || o.agent == "":
		return f, usagef("name a job, or give --agent and --prompt; the jobs are listed by: rouse jobs")
	}

	if o.again && o.file == "" {
		return f, usagef("--again goes with --file; a job without a file can be run as often as you like")
	}
	if o.file != "" {
		if f.Job == "" {
			return f, usagef("--file needs a job")
		}

		// The daemon has another working folder.
		path, err := filepath.Abs(o.file)
		if err != nil {
			return f, err
		}
		f.File, f.Again = api.Path(path), o.again
	}

	for _, pair := range o.input {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return f, usagef("--input %q is not key=value", pair)
		}

		if f.Input == nil {
			f.Input = map[string]string{}
		}

		f.Input[key] = value
	}

	return f, nil
}

func fireAndFollow(cmd *cobra.Command, at *place, fire api.RunRequest, o runOptions) error {
	ctx := cmd.Context()
	s, err := at.openToRun(ctx)
	if err != nil {
		return err
	}
	defer s.close()

	var r api.Run
	if err := s.Post(ctx, "/v1/runs", fire, &r); err != nil {
		return err
	}

	// Without a daemon nobody else would execute the run, so this command always waits.
	if s.daemon && !o.wait && !o.quiet {
		if o.json {
			return printJSON(cmd.OutOrStdout(), r)
		}
		return sayQueued(cmd, s, r.ID)
	}

	if err := follow(cmd, s, r.ID, o.json || o.quiet); err != nil {
		return err
	}
	// Ctrl-C stops a run that is executed here, and its outcome is still to be shown.
	if err := s.Get(context.WithoutCancel(ctx), "/v1/runs/"+r.ID, nil, &r); err != nil {
		return err
	}

	if o.quiet && !o.json {
		return printResult(cmd, r)
	}
	return printEnd(cmd, r, o.json)
}

// printResult prints only the result of a run, for scripts.
func printResult(cmd *cobra.Command, r api.Run) error {
	if endedWell(r) {
		for line := range strings.Lines(r.Summary + "\n") {
			fmt.Fprintln(cmd.OutOrStdout(), text.OneLine(strings.TrimRight(line, "\n")))
		}
		return nil
	}
	return fmt.Errorf("run %s: %s: %s; see: rouse show %[1]s", r.ID, outcomeMark(r), text.OneLine(runSummary(r)))
}

// printEnd prints how a run ended, or for whom it waits. The error says that it did not end well.
func printEnd(cmd *cobra.Command, r api.Run, asJSON bool) error {
	if asJSON {
		if err := printJSON(cmd.OutOrStdout(), r); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "run %s  %s  %s\n", r.ID, paint(cmd.OutOrStdout(), outcomeMark(r)), text.OneLine(runSummary(r)))
	}

	switch {
	case asJSON:
	case r.WaitingFor == domain.WaitInput:
		fmt.Fprintln(cmd.OutOrStdout(), "it waits for your answer: rouse inbox")
	case r.WaitingFor == domain.WaitPause:
		fmt.Fprintln(cmd.OutOrStdout(), "its skill has paused it, until you have it go on: rouse inbox")
	case r.WaitingFor == domain.WaitApproval:
		fmt.Fprintln(cmd.OutOrStdout(), "it waits for your approval: rouse inbox")
	}

	if !endedWell(r) {
		return errSilent
	}

	return nil
}

const (
	// firstLooks is the number of checks of a run by a command that does not wait for its end.
	firstLooks = 6
	lookEvery  = 100 * time.Millisecond
)

// sayQueued prints that the daemon accepted a run, and why it waits if the reason is known within a moment: a pause, a wrong setting,
// or a model that cannot be reached.
func sayQueued(cmd *cobra.Command, s *session, id string) error {
	ctx := cmd.Context()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()

	reason := ""
	for range firstLooks {
		var p api.Pending
		if err := s.Get(ctx, "/v1/runs/"+id+"/pending", nil, &p); err == nil && p.Blocked {
			return sayf(cmd.OutOrStdout(), "run %s %s\n", id, text.OneLine(p.Reason))
		}
		var r api.Run
		if err := s.Get(ctx, "/v1/runs/"+id, nil, &r); err != nil || r.State == domain.StateFinished {
			break
		}
		if reason = p.Reason; reason != "" && r.State == domain.StateRunning {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if reason != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "rouse: run %s %s\n", id, text.OneLine(reason))
	}

	return sayf(cmd.OutOrStdout(), "run %s is queued; follow it with: rouse logs %s -f\n", id, id)
}

// follow waits until a run has finished, executing it here when there is no daemon. Meanwhile it says
// for what the run waits.
func follow(cmd *cobra.Command, s *session, id string, quiet bool) error {
	ctx, cancel := context.WithCancelCause(cmd.Context())
	var saying sync.WaitGroup
	saying.Go(func() {
		if err := sayPending(ctx, cmd.ErrOrStderr(), s, id, quiet || s.local != nil); err != nil {
			cancel(err)
		}
	})
	defer saying.Wait()
	defer cancel(nil)

	if s.local != nil {
		return s.local.RunOnly(cmd.Context(), id)
	}

	err := followRemote(ctx, cmd, s, id, quiet)
	var blocked *blockedError
	switch {
	case errors.As(context.Cause(ctx), &blocked):
		return blocked
	case ctx.Err() != nil: // Ctrl-C only ends the waiting: the run belongs to the daemon
		return fmt.Errorf("run %s goes on in the daemon; follow it with: rouse logs %[1]s -f, or stop it with: rouse stop %[1]s", id)
	case err != nil:
		return fmt.Errorf("%w; what became of the run says: rouse show %s", err, id)
	}
	return nil
}

const (
	// pendingEvery is how often a command that waits for a run asks what that waits for.
	pendingEvery = time.Second
	// sayOnAfter is how often it has asked before it says that the run is on, where nothing else shows that.
	sayOnAfter = 3
)

// sayPending says for what a run waits, whenever that changes, until ctx ends; of a run that is on it says
// so where silent. A *blockedError says that waiting for a run of the daemon does not help.
func sayPending(ctx context.Context, w io.Writer, s *session, id string, silent bool) error {
	ticker := time.NewTicker(pendingEvery)
	defer ticker.Stop()

	said := ""
	for asked := 0; ; asked++ {
		var p api.Pending
		if err := s.Get(ctx, "/v1/runs/"+id+"/pending", nil, &p); err != nil {
			return nil //nolint:nilerr // whoever follows the run hears of what is wrong
		}
		if p.Blocked && s.daemon {
			return &blockedError{id, p.Reason}
		}

		reason := p.Reason
		if reason == "" && silent && asked >= sayOnAfter {
			reason = fmt.Sprintf("is on; what it does: rouse logs %s -f", id)
		}
		if asked > 0 && reason != "" && reason != said { // what is over at once is no wait
			said = reason
			fmt.Fprintf(w, "rouse: run %s %s\n", id, text.OneLine(reason))
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// blockedError says that a run does not start before somebody has mended something.
type blockedError struct{ run, reason string }

func (e *blockedError) Error() string {
	return fmt.Sprintf("run %s %s (it starts by itself when this is fixed; to cancel it: rouse stop %[1]s)", e.run, text.OneLine(e.reason))
}

// followRemote waits until a run of the daemon has finished.
func followRemote(ctx context.Context, cmd *cobra.Command, s *session, id string, quiet bool) error {
	q := url.Values{"run": {id}, "follow": {"true"}}
	if !quiet {
		q.Set("live", "true")
		return printEvents(ctx, cmd, s, q, false)
	}

	for _, err := range s.Lines(ctx, "/v1/events", q) {
		if err != nil {
			return err
		}
	}
	return nil
}

func endedWell(r api.Run) bool {
	return r.Outcome.Done()
}

func newCall(at *place) *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "call AGENT TOOL [JSON]",
		Short: "Makes one tool call manually, as a recorded run under the agent's grants",
		Long: `Makes one tool call, as a recorded manual run under the agent's grants, and
prints the envelope. Exits 1 if the call failed.

A program that fails is no failed call: its exit code stands in the result. With --check it
is one, and so is a server's answer of 400 and above, as in a playbook.`,
		Example: `  rouse call bookkeeper db_query '{"sql": "select * from expenses limit 5"}'
  rouse call bookkeeper shell_run '{"command": "./backup.sh"}' --check`,
		Args: cobra.RangeArgs(2, 3),
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			fire := api.RunRequest{Agent: args[0], Tool: args[1], Args: json.RawMessage("{}"), Check: check}
			if len(args) == 3 {
				if !json.Valid([]byte(args[2])) {
					return usagef("the arguments are not JSON: %s", shorten(args[2], 80))
				}
				fire.Args = json.RawMessage(args[2])
			}

			return callManually(cmd, at, fire)
		}),
	}

	cmd.Flags().BoolVar(&check, "check", false, "a program that fails is a failed call")
	return cmd
}

func callManually(cmd *cobra.Command, at *place, fire api.RunRequest) error {
	ctx := cmd.Context()
	s, err := at.openToRun(ctx)
	if err != nil {
		return err
	}
	defer s.close()

	var r api.Run
	if err := s.Post(ctx, "/v1/runs", fire, &r); err != nil {
		return err
	}
	if err := follow(cmd, s, r.ID, true); err != nil {
		return err
	}

	var d api.RunDetail
	// As in fireAndFollow: an interrupted call still has an envelope to show.
	if err := s.Get(context.WithoutCancel(ctx), "/v1/runs/"+r.ID, nil, &d); err != nil {
		return err
	}

	for _, st := range d.StepsDetail {
		for _, c := range st.Calls {
			// A call that was asked about and not made has no answer.
			if string(c.Envelope) == "null" {
				continue
			}
			if err := printJSON(cmd.OutOrStdout(), c.Envelope); err != nil {
				return err
			}
			if !c.OK {
				return errSilent
			}

			return nil
		}
	}

	if d.WaitingFor == domain.WaitApproval {
		return fmt.Errorf("run %s needs your approval for the call: rouse inbox", d.ID)
	}

	return fmt.Errorf("run %s made no call: %s", d.ID, runSummary(d.Run))
}
