package condition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rouse/agent/permit"
	"rouse/agent/plan"
	"rouse/agent/programs"
	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/fspath"
	"rouse/internal/ledger/label"
	"rouse/internal/nofollow"
	"rouse/internal/text"
)

const maxLine = 200

// commandOutput is the number of characters of a command's output that are kept. Only one line is
// shown.
const commandOutput = 4 << 10

// checkCommand runs a command without a shell and without input. The agent may have written the
// command, so it is confined like the agent's own commands. It is read-only unless the condition
// allows writing.
func (q checker) checkCommand(ctx context.Context, g plan.Condition) (value string, ok bool, err error) {
	if err := permit.MakeWorkdir(&q.Attempt.Task); err != nil {
		return "", false, fmt.Errorf("the workdir cannot be made: %w", err)
	}

	argv, named, err := argvOf(g, q.Attempt.Plan.Boundary)
	if err != nil {
		return "", false, notStarted(ctx, g, err)
	}

	view, err := q.conditionView(g, named)
	if err != nil {
		return "", false, err
	}
	defer view.close()
	launcher := view.launcher

	out := shell.NewOutput(commandOutput) // shared by stdout and stderr, to keep their order
	program := shell.Program{Argv: argv, ReadOnly: !g.Write, Network: g.Network, Stdout: out, Stderr: out}
	ended, err := launcher.Run(ctx, program)
	if err != nil {
		return "", false, notStarted(ctx, g, err)
	}
	if ended.Unkept != nil {
		q.Log.Error("a condition's command: "+ended.Unkept.Error(), "job", q.Attempt.Run.Job, "run", q.Attempt.Run.ID)
	}
	record := context.WithoutCancel(ctx)
	if err := errors.Join(q.Programs.RecordDisarmed(record, q.Attempt.Run, ended.Disarmed), q.Programs.RecordKept(record, q.Attempt.Run, ended.Kept)); err != nil {
		return "", false, err
	}

	switch {
	case ctx.Err() != nil:
		return "", false, explainTimeout(ctx, g, context.DeadlineExceeded)
	case ended.KilledBy != "":
		return "", false, fmt.Errorf("it was ended because it went beyond a limit (%s)", ended.KilledBy)
	case ended.Exit < 0:
		return "", false, fmt.Errorf("it was ended from outside (signal: %s)", ended.Signal)
	}

	value = fmt.Sprintf("exit %d", ended.Exit)
	if line := firstLine(out); line != "" {
		value += ": " + q.display(line, maxLine)
	}
	printed, _ := out.Raw()
	// The command may read each path in its argv. If it reports such a path as missing, the path
	// does not exist.
	refused := launcher.Refused(program, ended, string(printed))
	switch {
	case refused != nil && (refused.Write || !slices.Contains(g.Command, refused.Path)):
		value += "; " + hint(*refused, g)
	case view.withheld != "" && ended.Exit != 0 && strings.Contains(strings.ToLower(string(printed)), "no such file"):
		value += fmt.Sprintf("; a condition with the network or without a sandbox works in an empty folder, apart from those in which agents can write: to give it one, add beside the command read: [%s]", text.Visible(view.withheld))
	}

	return value, ended.Exit == 0, nil
}

// hint returns a message that the sandbox may have refused an access, and the setting that allows
// it.
func hint(refused shell.Refusal, g plan.Condition) string {
	read := "read: [" + cmp.Or(text.Visible(refused.Path), "PATH") + "]"
	switch {
	case refused.Git != "":
		return refused.Hint(nil)
	case !g.Write && refused.Write:
		read = "write: true"
	case !g.Write:
		read += ", or write: true to let it write where its agent may"
	}
	return fmt.Sprintf("the sandbox (tier %s) may have refused that: to allow it, add beside the command %s", refused.Tier, read)
}

// argvOf returns the command with its links resolved, and the paths in it, which the command may
// read. A link below the boundary gives no permission, because an agent may have made it.
func argvOf(g plan.Condition, b nofollow.UntrustedDirs) (argv, named []string, err error) {
	argv = slices.Clone(g.Command)
	if argv[0], err = exec.LookPath(argv[0]); err != nil {
		return nil, nil, err
	}

	for i, word := range argv {
		// Every command can read system programs, and the sandbox has its own /proc, /sys and /dev.
		if !filepath.IsAbs(word) || i == 0 && shell.IsSystemProgram(word) || slices.ContainsFunc([]string{"/proc", "/sys", "/dev"}, func(dir string) bool { return fspath.Within(word, dir) }) {
			continue
		}
		actual, err := b.Resolve(word)
		if err == nil {
			_, err = b.Stat(actual)
		}
		if err == nil && filepath.Dir(actual) != actual {
			argv[i], named = actual, append(named, actual)
		}
	}

	return argv, append(named, g.Read...), nil
}

func notStarted(ctx context.Context, g plan.Condition, err error) error {
	program := g.Command[0]
	var path *fs.PathError
	var lookup *exec.Error
	switch {
	case ctx.Err() != nil:
		return explainTimeout(ctx, g, err)
	case programs.TierProblem(err) != nil:
		return fmt.Errorf("%w; a condition's command is confined as its agent's are: let the owner say sandbox: off with a reason, beside the command", programs.TierProblem(err))
	case errors.As(err, &lookup) && errors.Is(err, exec.ErrNotFound) && shell.Elsewhere(program) != "":
		return fmt.Errorf("the program %q is not on the daemon's PATH; write its whole path: command: [%s]", program, shell.Elsewhere(program))
	case errors.As(err, &lookup) && errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("there is no program %q on the daemon's PATH; install it, or give its path", program)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%s may not be executed; see its permissions (chmod +x)", program)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound): // reported by the sandbox, although it was found before
		return fmt.Errorf("%s does not exist, or the interpreter in its first line does not", program)
	case errors.As(err, &path):
		return fmt.Errorf("%s cannot be started: %w", program, path.Err)
	}

	return err
}

func firstLine(out *shell.Output) string {
	printed, _ := out.Raw() // contains the beginning, even if the output was cut
	for line := range strings.FieldsFuncSeq(string(printed), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if text.Collapse(text.OneLine(line)) != "" {
			return line
		}
	}
	return ""
}

type view struct {
	launcher *shell.Launcher
	withheld string // workdir, if the command cannot see it
	empty    string // temporary folder that replaces the workdir; "" if unused
}

func (v view) close() {
	if v.empty != "" {
		_ = os.RemoveAll(v.empty)
	}
}

// conditionView confines a condition to the places of its agent and the places that its owner
// named. A command with network access or without a sandbox could leak private data. So it sees no
// folder in which an agent or an untrusted source can write, unless the owner named the folder.
// Without a sandbox this is not enforced: the command can open any path that it knows.
func (q checker) conditionView(g plan.Condition, named []string) (v view, err error) {
	of := *q.Attempt
	t := &of
	if g.Unconfined != "" {
		t.Agent.Unconfined = g.Unconfined
	}

	if powerful := g.Network || t.Agent.Unconfined != ""; powerful {
		t.Files, t.Manifest, t.Received, t.Detail.File, t.Detail.Folder, t.Agent.Skills = nil, "", "", nil, "", plan.Skills{}
		t.Agent.Read = slices.DeleteFunc(slices.Clone(t.Agent.Read), t.Plan.Writers.Overlaps)
		if !g.Write {
			t.Agent.Write = nil
		}
		if !g.Write && !slices.ContainsFunc(named, func(path string) bool { return q.within(t.Agent.Workdir, path) }) {
			if v.empty, err = q.Programs.TempDir("condition"); err != nil {
				return v, fmt.Errorf("a condition needs a temporary folder: %w", err)
			}
			v.withheld = t.Agent.Workdir
			t.BaseDir = v.empty
		}
	}
	for _, path := range named {
		if q.within(path, t.Agent.Workdir) { // belongs to the agent, like the rest of the workdir
			t.Agent.Public = append(slices.Clone(t.Agent.Public), path)
		}
	}
	t.Agent.Read = append(slices.Clone(t.Agent.Read), named...)

	roots, err := permit.Roots(q.Ledger, t, nil)
	if err == nil {
		v.launcher, err = q.Programs.Launcher(t, roots)
	}
	if err != nil {
		v.close()
		return v, err
	}
	v.launcher.Limiter = q.Programs.Gates
	v.launcher.Starting = func(ctx context.Context, s shell.Start) error { return q.admit(ctx, g, t, roots, s) }
	return v, nil
}

// within reports whether a path equals a folder or lies in it. It resolves the owner's links.
func (q checker) within(path, folder string) bool {
	return fspath.Within(q.resolved(path), q.resolved(folder))
}

func (q checker) resolved(path string) string {
	real, err := q.Attempt.Plan.Boundary.Resolve(path)
	if err != nil {
		return filepath.Clean(path)
	}
	return real
}

// admit decides by labels whether the command of a condition may start. It returns an error if the
// command would need an approval. It labels the places that the command may write to, and records
// the start.
func (q checker) admit(ctx context.Context, g plan.Condition, t *plan.Attempt, roots *tool.Roots, s shell.Start) error {
	need := roots.ProgramNeed()
	held, from := need.AddsTaint, "strangers leave files in what it sees"
	for _, place := range need.Reads {
		letters, err := q.Ledger.Labels.Of(ctx, place)
		if err != nil {
			return err
		}
		if labels := tool.ParseTaint(letters); labels != 0 {
			if held |= labels; labels&tool.Untrusted != 0 {
				from = "once you have checked it: rouse grants trust " + text.Visible(place.Name)
			}
		}
	}
	if t.Agent.Unconfined != "" { // it can read every file that the daemon can read
		held |= tool.Private
	}
	if outward := s.Network || t.Agent.Unconfined != ""; outward && held&tool.Untrusted != 0 && held&tool.Private != 0 {
		return q.mixed(g, from, need.NotPrivate)
	}

	if g.Write {
		if s.Network {
			held |= tool.Untrusted
		}
		missing, err := q.Ledger.Labels.Unlabelled(ctx, held.String(), need.Writes)
		if err == nil && len(missing) > 0 {
			err = q.Ledger.Labels.RecordTaint(ctx, q.Attempt.Try, label.TaintUpdate{Taint: (held &^ tool.Outward).String(), Writes: missing})
		}
		if err != nil {
			return err
		}
	}
	return q.Programs.RecordStart(ctx, q.Attempt.Run, "condition", s)
}

// mixed returns the error of a condition that would combine untrusted content, private data and
// external effects. It names the ways to allow the command.
func (q checker) mixed(g plan.Condition, from, notPrivate string) error {
	way := "network: host"
	if !g.Network {
		way = "sandbox: off"
	}
	if notPrivate != "" {
		notPrivate = " (if it is not: " + notPrivate + ")"
	}
	return fmt.Errorf("it would get untrusted content (%s), private data%s and %s together, which needs an approval, and a condition cannot wait for one; change one of them, or show it no such folder",
		from, notPrivate, way)
}
