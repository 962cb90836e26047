package git

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
	"rouse/internal/text"
)

var (
	//go:embed status.md
	statusText string
	//go:embed diff.md
	diffText string
	//go:embed commit.md
	commitText string
)

// Limits of a call (OSA-38).
const (
	timeout  = 30 * time.Second
	maxDiff  = 20_000 // characters
	maxPaths = 500    // of a status, of each kind
)

// specs are the tools.
var (
	statusSpec = tool.Spec{
		Name: "git_status", Description: strings.TrimSpace(statusText), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesNothing,
		Given: tool.GivenRepository, Timeout: timeout,
	}
	diffSpec = tool.Spec{
		Name: "git_diff", Description: strings.TrimSpace(diffText), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesNothing,
		Given: tool.GivenRepository, Timeout: timeout,
	}
	commitSpec = tool.Spec{
		Name: "git_commit", Description: strings.TrimSpace(commitText), Effect: domain.EffectWrite, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesElsewhere,
		Given: tool.GivenRepository, Timeout: timeout,
	}
)

// Specs are the tools of the family.
func Specs() tool.Specs { return tool.Specs{statusSpec, diffSpec, commitSpec} }

// Options are what the tools of one run work with.
type Options struct {
	Host   *shell.Host
	Folder string   // decides whether the agent has the tools: its working folder
	Allow  []string // the agent's globs of tools
	Redact func(text string) string
}

// family are the tools of one run.
type family struct {
	host   *shell.Host
	redact func(text string) string

	mu            sync.Mutex
	proposedTrees map[string]string // the tree that the gate was told of, by the key of its call
}

// Tools are git_status, git_diff and git_commit. An agent has them when its working folder is a
// repository, or when its list of tools names them.
func Tools(o Options) ([]tool.Tool, error) {
	if o.Host == nil || o.Host.Roots == nil {
		return nil, errors.New("git: a host for commands is needed")
	}

	f := &family{host: o.Host, redact: o.Redact, proposedTrees: map[string]string{}}
	if f.redact == nil {
		f.redact = func(text string) string { return text }
	}

	repository := Repository(o.Folder)
	var out []tool.Tool
	for _, define := range []func() (tool.Tool, error){f.statusTool, f.diffTool, f.commitTool} {
		t, err := define()
		if err != nil {
			return nil, err
		}
		if repository || tool.Named(o.Allow, t.Name()) {
			out = append(out, t)
		}
	}

	return out, nil
}

// Repository says whether a folder is one, as far as its agent is given the tools for it.
func Repository(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, ".git"))
	return err == nil
}

// readNeed is what a call that changes nothing tells the gate.
func (f *family) readNeed(ctx context.Context, _ tool.Invocation, _ any) (tool.Need, error) {
	n, err := f.host.Roots.Reads(ctx, "")
	n.Tier = string(f.host.Tier(ctx))
	n.Action, n.Shown = f.host.Roots.Workdir(), "look at the changes in the repository "+text.Visible(f.host.Roots.Workdir())
	return n, err
}

type file struct {
	Path   string `json:"path"`
	Status string `json:"status"` // added, modified, deleted, renamed, copied, conflict, type
	From   string `json:"from,omitempty"`
}

type statusResult struct {
	Branch    string   `json:"branch,omitempty"`
	Clean     bool     `json:"clean"`
	Staged    []file   `json:"staged"`
	Unstaged  []file   `json:"unstaged"`
	Untracked []string `json:"untracked"`
	Truncated bool     `json:"truncated,omitempty"` // more than 500 of a kind
}

func (f *family) statusTool() (tool.Tool, error) {
	type args struct{}
	s := statusSpec
	s.Needs = tool.Needs(f.readNeed)
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, _ args) (tool.Envelope, error) {
		r, err := openRepo(ctx, f.host, in.Agent)
		if err != nil {
			return envelopeOf(err)
		}
		defer r.close()

		entries, err := r.list(ctx, "status", "--porcelain=v1", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=all")
		if err != nil {
			return envelopeOf(err)
		}
		return tool.Success(parseStatus(entries)), nil
	})
}

var statusWords = map[byte]string{'M': "modified", 'T': "type", 'A': "added", 'D': "deleted", 'R': "renamed", 'C': "copied", 'U': "conflict"}

// parseStatus reads what git says in its format for programs: two letters and a path, and after a new
// name the old one.
func parseStatus(entries []string) statusResult {
	res := statusResult{Staged: []file{}, Unstaged: []file{}, Untracked: []string{}}
	add := func(list *[]file, f file) {
		if len(*list) == maxPaths {
			res.Truncated = true
			return
		}
		*list = append(*list, f)
	}

	for i := 0; i < len(entries); i++ {
		e := entries[i]
		if branch, ok := strings.CutPrefix(e, "## "); ok {
			branch = strings.TrimPrefix(branch, "No commits yet on ")
			res.Branch, _, _ = strings.Cut(branch, "...")
			continue
		}

		if len(e) < 4 {
			continue
		}

		x, y, path, from := e[0], e[1], text.Clean(e[3:]), ""
		if x == 'R' || x == 'C' {
			if i++; i < len(entries) {
				from = text.Clean(entries[i])
			}
		}

		switch {
		case x == '?':
			if len(res.Untracked) == maxPaths {
				res.Truncated = true
				continue
			}
			res.Untracked = append(res.Untracked, path)
		case x == 'U' || y == 'U' || x == 'A' && y == 'A' || x == 'D' && y == 'D':
			add(&res.Unstaged, file{path, "conflict", ""})
		default:
			if w := statusWords[x]; w != "" {
				add(&res.Staged, file{path, w, from})
			}
			if w := statusWords[y]; w != "" {
				add(&res.Unstaged, file{path, w, ""})
			}
		}
	}

	res.Clean = len(res.Staged)+len(res.Unstaged)+len(res.Untracked) == 0
	return res
}

type diffArgs struct {
	Path   string `json:"path,omitempty" jsonschema:"a file or folder; everything when absent"`
	Staged bool   `json:"staged,omitempty" jsonschema:"what is staged, instead of what is in the folder"`
	Commit string `json:"commit,omitempty" jsonschema:"compare with this commit instead of the last state that was staged or committed"`
}

func (f *family) diffTool() (tool.Tool, error) {
	s := diffSpec
	s.Needs = tool.Needs(f.readNeed)
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a diffArgs) (tool.Envelope, error) {
		r, err := openRepo(ctx, f.host, in.Agent)
		if err != nil {
			return envelopeOf(err)
		}
		defer r.close()

		text, hidden, err := f.diff(ctx, r, a)
		if err != nil {
			return envelopeOf(err)
		}

		var warnings []string
		if len(hidden) > 0 {
			warnings = append(warnings, "files that hold secrets by their names are left out: "+strings.Join(hidden, ", "))
		}

		return tool.Success(map[string]any{"diff": text, "changed": text != ""}, warnings...), nil
	})
}

// diffOptions are options under which git shows differences by itself alone.
var diffOptions = []string{"--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"}

func (f *family) diff(ctx context.Context, r *repo, a diffArgs) (shown string, hidden []string, err error) {
	args := slices.Clone(diffOptions)
	if a.Staged {
		args = append(args, "--cached")
	}

	if a.Commit != "" {
		commit, err := r.line(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", a.Commit+"^{commit}")
		if err != nil {
			return "", nil, err
		}
		if commit == "" {
			return "", nil, &failure{tool.Failure(tool.KindNotFound, "there is no commit %s", text.Visible(a.Commit)).WithField("commit", "")}
		}
		args = append(args, commit)
	}

	args = append(args, "--")
	if a.Path != "" {
		path, err := r.relative(a.Path)
		if err != nil {
			return "", nil, err
		}
		args = append(args, path)
	}

	return f.patch(ctx, r, args)
}

// patch is a difference as it is read, cut to its size, without the content of files that hold
// secrets by their names.
func (f *family) patch(ctx context.Context, r *repo, args []string) (shown string, hidden []string, err error) {
	names, err := r.list(ctx, append([]string{"diff", "--name-only", "-z", "--no-renames"}, args...)...)
	if err != nil {
		return "", nil, err
	}

	open := slices.DeleteFunc(slices.Clone(names), tool.Secret)
	for _, name := range names {
		if tool.Secret(name) {
			hidden = append(hidden, text.Clean(name))
		}
	}

	if len(open) == 0 {
		return "", hidden, nil
	}

	if len(hidden) > 0 { // only what may be seen is asked for
		args = append(slices.Clone(args[:slices.Index(args, "--")+1]), open...)
	}

	out := shell.NewOutput(maxDiff)
	if err := r.run(ctx, nil, out, append([]string{"diff", "--stat", "--patch"}, args...)...); err != nil {
		return "", nil, err
	}

	return out.Text(f.redact), hidden, nil
}
