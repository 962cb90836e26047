package condition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/agentdb"
	"rouse/agentdb/pool"
	"rouse/internal/ledger"
	"rouse/internal/ledger/fileop"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

// UnmetPrefix is the beginning of the message about an unmet expectation.
const UnmetPrefix = "expected at "

// Unmet returns a description of the first unmet expectation, or "". It returns an error if an
// expectation cannot be checked. untrusted reports whether the run has read untrusted content. In
// that case commands need the strongest sandbox.
func Unmet(ctx context.Context, env Env, untrusted bool) (string, error) {
	t := env.Attempt
	for _, e := range t.Job.Expect {
		var why string
		var err error
		switch {
		case e.File != "":
			why, err = fileMissed(ctx, env.Ledger, t.Plan.Boundary, e.File, t.Try)
		case e.SQL != "":
			why, err = sqlUnmet(ctx, env.Databases, t.Agent.Name, e.SQL)
		default:
			why, err = commandUnmet(ctx, env, untrusted, e)
		}
		if err != nil {
			return "", fmt.Errorf("%s: the expectation could not be checked: %w", e.Where, err)
		}
		if why != "" {
			return fmt.Sprintf("%s%s: %s", UnmetPrefix, e.Where, why), nil
		}
	}
	return "", nil
}

// fileMissed returns why a file does not count as changed by the run, or "" if it does. The ledger
// also knows changes of earlier attempts and moved files. Their modification time may be older than
// the attempt.
func fileMissed(ctx context.Context, l *ledger.Ledger, b nofollow.UntrustedDirs, path string, a ledger.Attempt) (string, error) {
	path = spelled(b, path)
	why := fileUnmet(b, path, a.StartedAt)
	if why == "" {
		return "", nil
	}

	file, err := b.Stat(path)
	if err != nil {
		return why, nil //nolint:nilerr // why is the result
	}
	hash, err := ContentHash(ctx, b, path)
	if err != nil {
		return why, nil //nolint:nilerr // a folder, or a file that cannot be read
	}
	ops, err := l.FileOps.List(ctx, fileop.Filter{Run: a.Run, Limit: -1})
	if err != nil {
		return "", err
	}

	for _, op := range ops {
		if op.AfterHash != hash || !op.UndoneAt.IsZero() {
			continue
		}
		if info, err := b.Stat(op.Path); err != nil || !os.SameFile(info, file) {
			continue
		}
		if op.BeforeHash != hash {
			return "", nil
		}
		why = fmt.Sprintf("the run left the file %s unchanged; if that is not a failure, remove this expectation, or let the run write something new each time, such as the date", path)
	}
	return why, nil
}

func fileUnmet(b nofollow.UntrustedDirs, path string, started time.Time) string {
	info, err := b.Stat(path)
	if _, ok := errors.AsType[*nofollow.LinkError](err); ok {
		return fmt.Sprintf("the file %s is none: %v", path, err)
	}
	if err != nil {
		return fmt.Sprintf("the file %s does not exist", path)
	}

	// Timestamps of files are coarser than the clock: by up to 10 ms, or by seconds on some file
	// systems.
	earliest := started.Add(-20 * time.Millisecond)
	if info.ModTime().Nanosecond() == 0 {
		earliest = started.Truncate(2 * time.Second)
	}
	if info.ModTime().Before(earliest) {
		return fmt.Sprintf("the file %s was not changed by this run (last change %s)", path, info.ModTime().Format(time.RFC3339))
	}
	return ""
}

// sqlUnmet returns why a query on the agent's database does not give one true value, or "".
func sqlUnmet(ctx context.Context, databases *pool.Pool, agent, sql string) (string, error) {
	db, release, err := databases.Get(ctx, agent)
	if err != nil {
		return "", err
	}
	defer release()

	rows, err := db.Query(ctx, agentdb.QuerySpec{SQL: sql, Limit: 1})
	var bad *agentdb.Error
	if errors.As(err, &bad) {
		return fmt.Sprintf("%q fails: %s", sql, bad.Message), nil
	}
	if err != nil {
		return "", err
	}
	if len(rows.Rows) == 0 || len(rows.Columns) == 0 {
		return fmt.Sprintf("%q gives no row", sql), nil
	}

	value := rows.Rows[0][rows.Columns[0]]
	if truth(value) {
		return "", nil
	}

	return fmt.Sprintf("%q gives %v", sql, value), nil
}

func truth(value any) bool {
	switch v := value.(type) {
	case int64:
		return v != 0
	case float64:
		return v != 0
	case bool:
		return v
	case string:
		return v != "" && v != "0"
	}
	return false
}

// expectedTimeout is the default timeout of an expected command.
const expectedTimeout = 10 * time.Minute

// Limits of the output of an expected command. An error shows its last lines, because test programs
// print a summary at the end.
const (
	expectedOutput = 64 << 10
	expectedLines  = 40
	expectedTail   = 4_000 // bytes
)

// commandUnmet returns why an expected command failed, or "". The agent may have written the
// command, for example as a test. So the command is confined like the agent's own commands, and has
// no network.
func commandUnmet(ctx context.Context, env Env, untrusted bool, e plan.Expectation) (string, error) {
	t := env.Attempt
	roots, err := permit.Roots(env.Ledger, t, nil) // no authorizer, because the run may already write everything that the command can write
	if err != nil {
		return "", err
	}
	launcher, err := env.Programs.Launcher(t, roots)
	if err != nil {
		return "", err
	}
	if untrusted && t.MinTier() == "" {
		programs.RequireStrongest(launcher)
	}

	ctx, stop := context.WithTimeout(ctx, cmp.Or(e.Timeout, expectedTimeout))
	defer stop()
	out := shell.NewOutput(expectedOutput) // shared by stdout and stderr, to keep their order
	ended, err := launcher.Run(ctx, shell.Program{Argv: e.Command, Stdout: out, Stderr: out})
	name := text.Visible(strings.Join(e.Command, " "))
	if err != nil {
		envelope, failure := shell.StartFailure(ctx, err)
		return fmt.Sprintf("%s could not be started: %s", name, envelope.Message), failure
	}
	if err := env.Programs.RecordEnded(ctx, t.Run, ended); err != nil {
		return "", err
	}

	how := fmt.Sprintf("ended with exit code %d", ended.Exit)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		how = fmt.Sprintf("took longer than %s", cmp.Or(e.Timeout, expectedTimeout))
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case ended.KilledBy != "":
		how = fmt.Sprintf("went beyond a limit (%s)", ended.KilledBy)
	case ended.Exit < 0:
		how = fmt.Sprintf("was ended from outside (signal: %s)", ended.Signal)
	case ended.Exit == 0:
		return "", nil
	}
	if said := lastLines(out); said != "" {
		how += ":\n" + said
	}
	return name + " " + how, nil
}

func lastLines(out *shell.Output) string {
	raw, _ := out.Raw()
	lines := strings.Split(strings.TrimRight(text.Clean(string(raw)), "\n"), "\n")
	lines = lines[max(0, len(lines)-expectedLines):]
	said := strings.Join(lines, "\n")
	if cut := len(said) - expectedTail; cut > 0 {
		said = "…" + strings.ToValidUTF8(said[cut:], "")
	}
	return said
}

// ClaimExpected claims the expected files of the job, even if a program wrote them.
func ClaimExpected(ctx context.Context, l *ledger.Ledger, t *plan.Attempt) error {
	if t.Job.Watched.Folder == "" {
		return nil
	}

	for _, e := range t.Job.Expect {
		path := spelled(t.Plan.Boundary, e.File)
		if e.File == "" || fileUnmet(t.Plan.Boundary, path, t.Try.StartedAt) != "" {
			continue
		}

		o, ok := statOutput(ctx, t.Plan.Boundary, path)
		if !ok {
			continue
		}
		if err := permit.ClaimOutput(ctx, l, t, o); err != nil {
			return err
		}
	}

	return nil
}

// statOutput returns the current state of a file. It returns false if the file cannot be read or
// changes while it is read.
func statOutput(ctx context.Context, b nofollow.UntrustedDirs, path string) (tool.Output, bool) {
	stat := func() (int64, time.Time, bool) {
		info, err := b.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			return 0, time.Time{}, false
		}
		return info.Size(), info.ModTime(), true
	}

	actual, err := b.Resolve(path)
	size, modified, ok := stat()
	if err != nil || !ok {
		return tool.Output{}, false
	}

	// The hash is valid only if the file did not change while it was read.
	hash, err := ContentHash(ctx, b, path)
	if err != nil {
		return tool.Output{}, false
	}
	if again, later, ok := stat(); !ok || again != size || !later.Equal(modified) {
		return tool.Output{}, false
	}

	return tool.Output{Path: actual, Hash: hash, Size: size, ModTime: modified}, true
}
