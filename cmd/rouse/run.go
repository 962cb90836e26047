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
	"rouse/cmd/internal/homedir"
	"rouse/cmd/internal/service"
	"rouse/internal/domain"
	"rouse/internal/text"
)

type runOptions struct {
	agent, prompt, file string
	session             string
	input               []string
	wait, fresh, again  bool
	quiet               bool
}

func newRun(env *cli) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			fire, err := o.fire(args)
			if err != nil {
				return err
			}
			return env.with(toRun, func(s *session, _ []string) error { return fireAndFollow(s, fire, o) })(cmd, args)
		},
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
	f.Bool("json", false, "print the run as JSON")

	return cmd
}

// fire returns the request for the command line.
func (o runOptions) fire(args []string) (api.RunRequest, error) {
	f := api.RunRequest{Agent: o.agent, Prompt: o.prompt, Session: o.session, NewSession: o.fresh}
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
		// The daemon has a different working directory.
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

func fireAndFollow(s *session, fire api.RunRequest, o runOptions) error {
	var r api.Run
	if err := s.post("/v1/runs", fire, &r); err != nil {
		return err
	}

	// Without a daemon no other process executes the run, so the command always waits.
	if s.daemon && !o.wait && !o.quiet {
		return jsonOr(s.cmd, r, func() error { return sayQueued(s, r.ID) })
	}
	asJSON := wantsJSON(s.cmd)
	if err := s.finish(r.ID, asJSON || o.quiet, &r); err != nil {
		return err
	}
	if o.quiet && !asJSON {
		return printResult(s.out, r)
	}
	return printEnd(s, r)
}

// execute starts a run, waits silently for its end, and reads the run into result.
func (s *session) execute(fire api.RunRequest, result any) error {
	var r api.Run
	if err := s.post("/v1/runs", fire, &r); err != nil {
		return err
	}
	return s.finish(r.ID, true, result)
}

// finish waits for the end of a run and reads the run into result.
func (s *session) finish(id string, quiet bool, result any) error {
	if err := follow(s, id, quiet); err != nil {
		return err
	}
	// Ctrl-C stops a run that this process executes. Its outcome must still be printed.
	return s.Get(context.WithoutCancel(s.cmd.Context()), "/v1/runs/"+id, nil, result)
}

// printResult prints only the result of a run, for scripts. It returns an error if the run failed.
func printResult(w io.Writer, r api.Run) error {
	if !endedWell(r) {
		return fmt.Errorf("run %s: %s: %s; see: rouse show %[1]s", r.ID, outcomeMark(r), text.OneLine(runSummary(r)))
	}
	for line := range strings.Lines(r.Summary + "\n") {
		fmt.Fprintln(w, text.OneLine(line))
	}
	return nil
}

// waitTexts describe each reason for which a run waits.
var waitTexts = map[domain.Wait]string{
	domain.WaitInput:    "it waits for your answer: rouse inbox",
	domain.WaitPause:    "its skill has paused it, until you have it go on: rouse inbox",
	domain.WaitApproval: "it waits for your approval: rouse inbox",
}

// printEnd prints how a run ended or why it waits. It returns an error unless the run succeeded.
func printEnd(s *session, r api.Run) error {
	return failIf(!endedWell(r), jsonOr(s.cmd, r, func() error {
		fmt.Fprintf(s.out, "run %s  %s  %s\n", r.ID, paint(s.out, outcomeMark(r)), text.OneLine(runSummary(r)))
		if waits := waitTexts[r.WaitingFor]; waits != "" {
			return sayf(s.out, "%s\n", waits)
		}
		return nil
	}))
}

const (
	// firstLooks is the number of times a command that does not wait for the end checks its run.
	firstLooks = 6
	lookEvery  = 100 * time.Millisecond
)

// sayQueued prints that the daemon accepted a run. If the run does not start within a moment,
// sayQueued prints the reason: a pause, a wrong setting, or an unreachable model.
func sayQueued(s *session, id string) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()

	reason := ""
	for range firstLooks {
		var p api.Pending
		if err := s.get("/v1/runs/"+id+"/pending", nil, &p); err == nil && p.Blocked {
			return sayf(s.out, "run %s %s\n", id, text.OneLine(p.Reason))
		}
		var r api.Run
		if err := s.get("/v1/runs/"+id, nil, &r); err != nil || r.State == domain.StateFinished {
			break
		}
		if reason = p.Reason; reason != "" && r.State == domain.StateRunning {
			break
		}
		select {
		case <-ticker.C:
		case <-s.cmd.Context().Done():
			return s.cmd.Context().Err()
		}
	}
	if reason != "" {
		fmt.Fprintf(s.cmd.ErrOrStderr(), "rouse: run %s %s\n", id, text.OneLine(reason))
	}
	return sayf(s.out, "run %s is queued; follow it with: rouse logs %[1]s -f\n", id)
}

// follow waits until a run has finished. Without a daemon, this process executes the run. Meanwhile
// follow prints the reason if the run waits.
func follow(s *session, id string, quiet bool) error {
	ctx, cancel := context.WithCancelCause(s.cmd.Context())
	var saying sync.WaitGroup
	saying.Go(func() {
		if err := sayPending(ctx, s, id, quiet || s.local != nil); err != nil {
			cancel(err)
		}
	})
	defer saying.Wait()
	defer cancel(nil)

	if s.local != nil {
		return s.local.RunOnly(s.cmd.Context(), id)
	}

	err := followRemote(ctx, s, id, quiet)
	var blocked *blockedError
	switch {
	case errors.As(context.Cause(ctx), &blocked):
		return blocked
	case ctx.Err() != nil: // Ctrl-C only ends the waiting: the daemon executes the run
		return fmt.Errorf("run %s goes on in the daemon; follow it with: rouse logs %[1]s -f, or stop it with: rouse stop %[1]s", id)
	case err != nil:
		return fmt.Errorf("%w; what became of the run says: rouse show %s", err, id)
	}
	return nil
}

const (
	// pendingEvery is the interval at which a waiting command asks for the state of its run.
	pendingEvery = time.Second
	// sayOnAfter is the number of requests before a silent command prints that the run is on.
	sayOnAfter = 3
)

// sayPending prints the reason for which a run waits, each time the reason changes, until ctx ends.
// If silent is true, it also prints that the run is in progress. It returns a *blockedError if the
// run cannot start until its user fixes a problem.
func sayPending(ctx context.Context, s *session, id string, silent bool) error {
	ticker := time.NewTicker(pendingEvery)
	defer ticker.Stop()

	said := ""
	for asked := 0; ; asked++ {
		var p api.Pending
		if err := s.Get(ctx, "/v1/runs/"+id+"/pending", nil, &p); err != nil {
			return nil //nolint:nilerr // the caller that follows the run reports the error
		}
		if p.Blocked && s.daemon {
			return &blockedError{id, p.Reason}
		}

		reason := p.Reason
		if reason == "" && silent && asked >= sayOnAfter {
			reason = fmt.Sprintf("is on; what it does: rouse logs %s -f", id)
		}
		if asked > 0 && reason != "" && reason != said { // skip a reason that is gone at the second request
			said = reason
			fmt.Fprintf(s.cmd.ErrOrStderr(), "rouse: run %s %s\n", id, text.OneLine(reason))
		}

		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// blockedError means that a run cannot start until its user fixes a problem.
type blockedError struct{ run, reason string }

func (e *blockedError) Error() string {
	return fmt.Sprintf("run %s %s (it starts by itself when this is fixed; to cancel it: rouse stop %[1]s)", e.run, text.OneLine(e.reason))
}

// followRemote waits until a run in another process has finished.
func followRemote(ctx context.Context, s *session, id string, quiet bool) error {
	q := url.Values{"run": {id}, "follow": {"true"}}
	if !quiet {
		q.Set("live", "true")
		return printEvents(ctx, s, q)
	}

	for _, err := range s.Lines(ctx, "/v1/events", q) {
		if err != nil {
			return err
		}
	}
	return nil
}

func endedWell(r api.Run) bool { return r.Outcome.Done() }

func newCall(env *cli) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			fire := api.RunRequest{Agent: args[0], Tool: args[1], Args: json.RawMessage("{}"), FailOnExitCode: check}
			if len(args) == 3 {
				if !json.Valid([]byte(args[2])) {
					return usagef("the arguments are not JSON: %s", shorten(args[2], 80))
				}
				fire.Args = json.RawMessage(args[2])
			}
			return env.with(toRun, func(s *session, _ []string) error { return callManually(s, fire) })(cmd, args)
		},
	}

	cmd.Flags().BoolVar(&check, "check", false, "a program that fails is a failed call")
	return cmd
}

func callManually(s *session, fire api.RunRequest) error {
	var d api.RunDetail
	if err := s.execute(fire, &d); err != nil {
		return err
	}
	for _, st := range d.StepsDetail {
		for _, c := range st.Calls {
			// A call that waits for approval was not made and has no result.
			if string(c.Envelope) != "null" {
				return failIf(!c.OK, printJSON(s.out, c.Envelope))
			}
		}
	}
	if d.WaitingFor == domain.WaitApproval {
		return fmt.Errorf("run %s needs your approval for the call: rouse inbox", d.ID)
	}
	return fmt.Errorf("run %s made no call: %s", d.ID, runSummary(d.Run))
}

func newStop(env *cli) *cobra.Command {
	cmd := newRunAction(env, "stop", "cancel", "Stops a run: at once if it is queued, after its current call if it runs",
		func(r api.Run) string {
			if r.State == "finished" {
				return fmt.Sprintf("run %s is cancelled", r.ID)
			}
			return fmt.Sprintf("run %s will stop", r.ID)
		})
	cmd.Aliases = []string{"cancel"}
	cmd.Long = cmd.Short + `.

It stops one run, never the daemon. The daemon ends with Ctrl-C in its terminal, with "rouse service stop"
if it is a service, or with SIGTERM. "rouse stop" without a run tells which of these applies here.`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("RUN is missing; runs that can be stopped are listed by: rouse runs --state running. %s", env.howToStop(cmd.Context()))
		}
		return cobra.ExactArgs(1)(cmd, args)
	}
	return cmd
}

// howToStop explains how to stop the daemon of this home.
func (env *cli) howToStop(ctx context.Context) string {
	home, err := env.homeDir()
	if err != nil {
		return "To stop the daemon: rouse service stop, or Ctrl-C in its terminal"
	}
	client, st, err := homedir.Connect(ctx, home)
	if err != nil || st.Foreground {
		return "No daemon serves " + home
	}
	client.Close()
	if recorded, err := service.Recorded(home); err == nil && recorded.Name != "" {
		return "To stop the daemon: rouse service stop"
	}
	return fmt.Sprintf("To stop the daemon: Ctrl-C in its terminal, or kill %d", st.PID)
}

func newRetry(env *cli) *cobra.Command {
	return newRunAction(env, "retry", "retry", "Runs a finished run again as a new attempt, or one that waits for its retry at once",
		func(r api.Run) string { return fmt.Sprintf("run %s is queued again", r.ID) })
}

// newRunAction returns a command that posts an action on one run to the API.
func newRunAction(env *cli, name, action, short string, said func(api.Run) string) *cobra.Command {
	return withJSON(&cobra.Command{
		Use:   name + " RUN",
		Short: short,
		RunE: sending(env, "/v1/runs/%s/"+action, func(s *session, r api.Run) error {
			text := said(r)
			// If no process executes the run, the API only records the request.
			if !s.executes(r) && r.State != domain.StateFinished {
				text += " when a daemon starts: rouse serve"
			}
			return sayf(s.out, "%s\n", text)
		}),
	})
}
