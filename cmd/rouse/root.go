package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"rouse/cmd/internal/api"
	"rouse/cmd/internal/buildinfo"
	"rouse/internal/text"
)

// Exit codes of every command.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// exitCodes describes the exit codes, for rouse help exit-codes and docs/reference.
var exitCodes = []struct {
	code int
	says string
}{
	{exitDone, "done; of a command that waits for a run: it ended well"},
	{exitFailed, "it failed, or found what it looks for: problems, differences, no daemon. Standard error says which, or the command's output does"},
	{exitUsage, "the command line is wrong: an argument is missing, or a name, a flag or a value is unknown. Nothing was done"},
}

// newExitCodes returns a help topic.
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

// errSilent ends a command with exitFailed if the command has already printed the problem.
var errSilent = errors.New("already said")

// usageError is an error in the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failure marks an error that a command returned, unlike an error of the command line parser.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// run executes one command line and returns the exit code of the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	env := &cli{stderr: stderr}
	root := newRoot(env) //nolint:contextcheck // cobra passes the context on
	// Add completions only for a completion request of a shell. cobra has a second request name,
	// with a suffix, for completion without descriptions.
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, cobra.ShellCompRequestCmd) }) {
		completable(root, env) //nolint:contextcheck // as above
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		env.warnBroken()
		return exitDone
	}

	if !errors.Is(err, errSilent) {
		fmt.Fprintln(stderr, "rouse:", err)
	}
	if errors.Is(err, syscall.EMFILE) {
		fmt.Fprintln(stderr, "rouse: this shell lets a program open too few files at a time; raise that with: ulimit -n 1024")
	}

	// If no command returned the error, cobra's parser did: an unknown flag or command.
	var failed failure
	if !errors.As(err, &failed) {
		fmt.Fprintln(stderr, "usage:", cmd.UseLine())
		return exitUsage
	}

	var wrong usageError
	// The daemon knows the names of jobs and agents, so it reports a misspelt one.
	var answer *api.Error
	if errors.As(err, &wrong) || (errors.As(err, &answer) && answer.Usage) {
		return exitUsage
	}

	return exitFailed
}

func newRoot(env *cli) *cobra.Command {
	root := &cobra.Command{
		Use:   "rouse",
		Short: "Wakes AI agents when something happens",
		Long: `rouse wakes AI agents when something happens: a cron schedule comes due, a file
lands in a folder, or you ask. Describe agents and jobs in rouse.yaml, start
"rouse serve", and read what happened with "rouse runs" and "rouse show".`,
		Version:           buildLine(buildinfo.This()),
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}

	root.SetVersionTemplate("{{.Version}}\n")
	root.PersistentFlags().StringVar(&env.config, "config", "", "configuration `file` (default ./rouse.yaml, then HOME/rouse.yaml)")
	root.PersistentFlags().StringVar(&env.home, "home", "", "`folder` that holds all state (default the configuration's home, $ROUSE_HOME or ~/.rouse)")
	for _, g := range groups(env) {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title + ":"})
		for _, cmd := range g.commands {
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("Administer")
	root.AddCommand(newMan(), newExitCodes(), newTimes())

	root.SetFlagErrorFunc(flagError)
	eachCommand(root, complement)
	return root
}

// group is a section of the help. Its commands are in the order in which a new user needs them.
type group struct {
	title    string
	commands []*cobra.Command
}

func groups(env *cli) []group {
	return []group{
		{"Start", []*cobra.Command{
			newInit(), newNew(env), newImport(env), newServe(env), newRun(env), newWake(env), newCall(env), newReplay(env), newBackfill(env), newDashboard(env), newOpen(env),
		}},
		{"Look", []*cobra.Command{
			newStatus(env), newJobs(env), newNext(env), newWhy(env), newSimulate(env), newRuns(env), newShow(env), newLogs(env), newWatch(env), newArtifact(env),
			newIncidents(env), newBudget(env),
		}},
		{"Decide", []*cobra.Command{
			newInbox(env), newAnswer(env), newApprove(env), newDeny(env), newPause(env), newResume(env), newStop(env), newRetry(env), newUndo(env), newApply(env), newDiscard(env),
			newAck(env),
		}},
		{"Keep", []*cobra.Command{newBackup(env), newRestore(env), newDB(env), newLedger(env), newWorkspaces(env), newAudit(env)}},
		{"Extend", []*cobra.Command{newSkills(env), newTools(), newGrants(env), newMCPServers(env), newMCP(env), newWebhooks(env)}},
		{"Administer", []*cobra.Command{
			newConfig(env), newExplain(env), newSecrets(env), newDoctor(env), newSelftest(env), newService(env), newNotify(env), newEngine(env), newVersion(),
		}},
	}
}

// argumentWord matches an argument in the Use of a command: RUN, [TOOL…], DIR|FILE.
var argumentWord = regexp.MustCompile(`^(\[?)([A-Z]+(?:\|[A-Z]+)*)(…|\.\.\.)?\]?$`)

// argument is a positional argument in the Use of a command.
type argument struct {
	name     string // JOB, DIR|FILE
	optional bool
	repeats  bool
}

// argumentsOf returns the positional arguments in the Use of a command, such as "call AGENT TOOL
// [JSON]". If the command has several forms, the first counts. Values of flags are not arguments.
func argumentsOf(cmd *cobra.Command) (out []argument) {
	use, _, _ := strings.Cut(cmd.Use, " | ")
	for _, word := range strings.Fields(use)[1:] {
		m := argumentWord.FindStringSubmatch(word)
		if m == nil {
			break
		}
		out = append(out, argument{m[2], m[1] != "", m[3] != ""})
	}
	return out
}

func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		eachCommand(c, do)
	}
}

// complement applies the rules that all commands share. Arguments are checked against the Use. A
// command that only has subcommands prints its help. Errors of a command are marked as failure.
func complement(cmd *cobra.Command) {
	check, run := cmd.Args, cmd.RunE
	if run == nil && !cmd.HasSubCommands() {
		return // a help topic
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return checkArguments(cmd, args)
		}
		err := check(cmd, args)
		if err == nil || errors.As(err, new(usageError)) { // the command words a usage error itself
			return err
		}
		return cmp.Or(checkArguments(cmd, args), err)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if run == nil {
			return cmd.Help()
		}
		if err := run(cmd, args); err != nil {
			return failure{err}
		}
		return nil
	}
}

// checkArguments returns an error that names the missing argument or the first superfluous one.
func checkArguments(cmd *cobra.Command, args []string) error {
	if cmd.HasSubCommands() && len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}

	wanted := argumentsOf(cmd)
	for i, a := range wanted {
		if i >= len(args) && !a.optional {
			return fmt.Errorf("%s is missing", strings.ReplaceAll(a.name, "|", " or "))
		}
	}
	if len(args) > len(wanted) && (len(wanted) == 0 || !wanted[len(wanted)-1].repeats) {
		return fmt.Errorf("%q is one argument too many", args[len(wanted)])
	}
	return nil
}

// unknownCommand returns an error that suggests the nearest command.
func unknownCommand(cmd *cobra.Command, name string) error {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}

	said := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if ask := text.DidYouMean(name, known); ask != "" {
		return errors.New(said + "; " + ask)
	}
	return fmt.Errorf("%s; %s --help lists them", said, cmd.CommandPath())
}

// flagError adds the nearest flag to the error for an unknown flag.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}

	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	if ask := text.DidYouMean("--"+unknown.GetSpecifiedName(), known); ask != "" {
		return fmt.Errorf("%w; %s", err, ask)
	}
	return err
}

// newMan returns a command that writes manual pages from the command tree, for package builds.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Writes a manual page for each command into a folder, which has to be there",
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			// GenManTree dates the pages by $SOURCE_DATE_EPOCH, so that builds are reproducible.
			cmd.Root().DisableAutoGenTag = true
			return doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "rouse " + buildinfo.Version(), Manual: "rouse"}, args[0])
		},
	}
}
