package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/daemon"
)

// Exit codes of every command (design: cli).
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// exitCodes says what they mean, for rouse help exit-codes and docs/reference.
var exitCodes = []struct {
	code int
	says string
}{
	{exitDone, "done; of a command that waits for a run: it ended well"},
	{exitFailed, "it failed, or found what it looks for: problems, differences, no daemon. Standard error says which, or the command's output does"},
	{exitUsage, "the command line is wrong: an argument is missing, or a name, a flag or a value is unknown. Nothing was done"},
}

// newExitCodes is a topic of the help alone.
func newExitCodes() *cobra.Command {
	long := "What the exit codes of all commands mean:\n"
	for _, c := range exitCodes {
		long += fmt.Sprintf("\n  %d  %s", c.code, c.says)
	}
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes of all commands mean", Long: long}
}

// newTimes returns a help topic.
func newTimes() *cobra.Command {
	return &cobra.Command{Use: "times", Short: "How times are written, and in which zone", Long: `All flags for a time accept the same forms:

  now, -2h, +30m, 3d       a duration from now; "2h ago" and "in 2h" work as well
  today, yesterday, tomorrow
  monday, mon              a day of the week
  2026-11-30               a date
  08:00, 8:30pm            a time of day
  "monday 08:00", "yesterday 08:00", "2026-11-30 08:00:30"
  2026-11-30T08:00:00Z     RFC 3339, the only form with a zone

A day without a time of day means its first instant. At the end of a span it includes the whole day.

Flags that look back (--since, --from, why --at, restore --at) take the most recent monday, today's
08:00, and 2h as two hours ago. Flags that look ahead (pause --until, wake --at) take the next
monday, the next 08:00, and 2h as in two hours.

Times are read and printed in the configured zone (timezone: Europe/Berlin), or else in the machine's
zone. If the clock of your terminal shows another time, the zone is printed as well. "rouse doctor"
shows the zone.`}
}

// errSilent ends a command with exitFailed after it has already said what it found.
var errSilent = errors.New("already said")

// usageError is a command line that was wrong.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failure marks an error that a verb returned, as against one that the command line's
// parser found.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// run executes one command line and returns the process's exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	at := &place{stderr: stderr}
	root := newRoot(at) //nolint:contextcheck // cobra hands the context on
	// Only a shell that asks needs them. cobra's name for that has another ending where no descriptions are wanted.
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, cobra.ShellCompRequestCmd) }) {
		completable(root, at) //nolint:contextcheck // as above
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		at.warnBroken()
		return exitDone
	}

	if !errors.Is(err, errSilent) {
		fmt.Fprintln(stderr, "rouse:", err)
	}
	if errors.Is(err, syscall.EMFILE) {
		fmt.Fprintln(stderr, "rouse: this shell lets a program open too few files at a time; raise that with: ulimit -n 1024")
	}

	// An error that no verb returned comes from cobra's parser: an unknown flag or command.
	var failed failure
	if !errors.As(err, &failed) {
		fmt.Fprintln(stderr, "usage:", cmd.UseLine())
		return exitUsage
	}

	var wrong usageError
	// The daemon knows the names of jobs and agents, so it decides about a misspelt one.
	var answer *api.Error
	if errors.As(err, &wrong) || (errors.As(err, &answer) && answer.Usage) {
		return exitUsage
	}

	return exitFailed
}

// verb adapts a command's function to cobra.
func verb(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := f(cmd, args); err != nil {
			return failure{err}
		}
		return nil
	}
}

func newRoot(at *place) *cobra.Command {
	root := &cobra.Command{
		Use:   "rouse",
		Short: "Wakes AI agents when something happens",
		Long: `rouse wakes AI agents when something happens: a cron schedule comes due, a file
lands in a folder, or you ask. Describe agents and jobs in rouse.yaml, start
"rouse serve", and read what happened with "rouse runs" and "rouse show".`,
		Version:           buildLine(daemon.ThisBuild()),
		SilenceUsage:      true,
		SilenceErrors:     true,
		Args:              cobra.NoArgs,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}

	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentFlags().StringVar(&at.config, "config", "", "configuration `file` (default ./rouse.yaml, then HOME/rouse.yaml)")
	root.PersistentFlags().StringVar(&at.home, "home", "", "`folder` that holds all state (default the configuration's home, $ROUSE_HOME or ~/.rouse)")
	for _, g := range groups(at) {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("Administer")
	root.AddCommand(newMan(), newExitCodes(), newTimes())

	sayUsage(root)
	return root
}

// group is a section of the help, with commands in the order in which a new user needs them.
type group struct {
	title    string
	commands []*cobra.Command
}

func groups(at *place) []group {
	return []group{
		{"Start", []*cobra.Command{
			newInit(), newNew(at), newImport(at), newServe(at), newRun(at), newWake(at), newCall(at), newReplay(at), newBackfill(at), newDashboard(at), newOpen(at),
		}},
		{"Look", []*cobra.Command{
			newStatus(at), newJobs(at), newNext(at), newWhy(at), newSimulate(at), newRuns(at), newShow(at), newLogs(at), newWatch(at), newArtifact(at),
			newIncidents(at), newBudget(at),
		}},
		{"Decide", []*cobra.Command{
			newInbox(at), newAnswer(at), newApprove(at), newDeny(at), newPause(at), newResume(at), newStop(at), newRetry(at), newUndo(at), newApply(at), newDiscard(at),
			newAck(at),
		}},
		{"Keep", []*cobra.Command{newBackup(at), newRestore(at), newDB(at), newLedger(at), newWorkspaces(at), newAudit(at)}},
		{"Extend", []*cobra.Command{newSkills(at), newTools(), newGrants(at), newMCPServers(at), newMCP(at), newWebhooks(at)}},
		{"Administer", []*cobra.Command{
			newConfig(at), newExplain(at), newSecrets(at), newDoctor(at), newSelftest(at), newService(at), newNotify(at), newEngine(at), newVersion(),
		}},
	}
}
