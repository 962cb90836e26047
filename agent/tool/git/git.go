package git

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"rouse/agent/tool"
	"rouse/agent/tool/shell"
	"rouse/internal/domain"
)

var (
	//go:embed status.md
	statusText string
	//go:embed diff.md
	diffText string
	//go:embed commit.md
	commitText string
)

// Limits of a call.
const (
	timeout  = 30 * time.Second
	maxDiff  = 20_000 // characters
	maxPaths = 500    // of each kind in a status
)

// The specs of the tools.
var (
	statusSpec = tool.Spec{
		Name: "git_status", Description: strings.TrimSpace(statusText), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesNothing,
		Example: `{}`, Args: reflect.TypeFor[statusArgs](), Requires: tool.RequiresRepository, Timeout: timeout,
	}
	diffSpec = tool.Spec{
		Name: "git_diff", Description: strings.TrimSpace(diffText), Effect: domain.EffectRead, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesNothing,
		Example: `{"path":"report.md"}`, Args: reflect.TypeFor[diffArgs](), Requires: tool.RequiresRepository, Timeout: timeout,
	}
	commitSpec = tool.Spec{
		Name: "git_commit", Description: strings.TrimSpace(commitText), Effect: domain.EffectWrite, Class: tool.ClassOther, Scope: tool.ScopeOutside, Writes: tool.WritesElsewhere,
		Example: `{"message":"Write the report of the week"}`, Args: reflect.TypeFor[commitArgs](), Requires: tool.RequiresRepository, Reports: tool.ReportsCommitted, Timeout: timeout,
	}
)

// Specs returns the specs of all tools in this package.
func Specs() tool.Specs { return tool.Specs{statusSpec, diffSpec, commitSpec} }

// Options configures the tools of one run.
type Options struct {
	Launcher *shell.Launcher
	Folder   string                   // working folder; the agent gets the tools if it is a repository
	Allow    []string                 // the agent's globs of tools
	Redact   func(text string) string // optional
}

// family is the state that the tools of one run share.
type family struct {
	Options

	mu            sync.Mutex
	proposedTrees map[string]string // trees proposed for approval, by call key
}

// Tools returns git_status, git_diff and git_commit. It returns only the tools that the agent's
// list names unless the working folder is a repository.
func Tools(o Options) ([]tool.Tool, error) {
	if o.Launcher == nil || o.Launcher.Roots == nil {
		return nil, errors.New("git: a host for commands is needed")
	}
	if o.Redact == nil {
		o.Redact = func(text string) string { return text }
	}

	f := &family{Options: o, proposedTrees: map[string]string{}}
	read, write := statusSpec, commitSpec
	read.Access = func(ctx context.Context, _ tool.Invocation, _ json.RawMessage) (tool.Access, error) {
		return f.readNeed(ctx)
	}
	write.Access = tool.AccessOf(f.needs)
	compare := diffSpec
	compare.Access = read.Access
	status, err := tool.Define(read, f.status)
	diff, also := tool.Define(compare, f.gitDiff)
	commit, too := tool.Define(write, f.commit)

	repository := Repository(o.Folder)
	return slices.DeleteFunc([]tool.Tool{status, diff, commit}, func(t tool.Tool) bool {
		return !repository && !tool.IsNamed(o.Allow, t.Name())
	}), errors.Join(err, also, too)
}

// Repository reports whether a folder looks like a repository.
func Repository(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, ".git"))
	return err == nil
}

// readNeed returns the need of a call that only reads.
func (f *family) readNeed(ctx context.Context) (tool.Access, error) {
	n := f.Launcher.Roots.ReadNeed("")
	n.Tier = string(f.Launcher.Tier(ctx))
	return n, nil
}
