package git

import (
	"context"
	_ "embed"
	"errors"
	"os"
	"path/filepath"
	"reflect"
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

// Limits of a call (OSA-38).
const (
	timeout  = 30 * time.Second
	maxDiff  = 20_000 // characters
	maxPaths = 500    // of a status, of each kind
)

// The tools.
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

// Specs are the tools of the family.
func Specs() tool.Specs { return tool.Specs{statusSpec, diffSpec, commitSpec} }

// Options are what the tools of one run work with.
type Options struct {
	Launcher *shell.Launcher
	Folder   string   // decides whether the agent has the tools: its working folder
	Allow    []string // the agent's globs of tools
	Redact   func(text string) string
}

// family are the tools of one run.
type family struct {
	host   *shell.Launcher
	redact func(text string) string

	mu            sync.Mutex
	proposedTrees map[string]string // the tree that an approval was asked for, by call key
}

// Tools are git_status, git_diff and git_commit. An agent has them when its working folder is a repository,
// or when its list of tools names them.
func Tools(o Options) ([]tool.Tool, error) {
	if o.Launcher == nil || o.Launcher.Roots == nil {
		return nil, errors.New("git: a host for commands is needed")
	}

	f := &family{host: o.Launcher, redact: o.Redact, proposedTrees: map[string]string{}}
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
		if repository || tool.IsNamed(o.Allow, t.Name()) {
			out = append(out, t)
		}
	}

	return out, nil
}

// Repository reports whether a folder looks like a repository, so that its agent gets the tools.
func Repository(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, ".git"))
	return err == nil
}

// readNeed is what a call that only reads tells the authorizer.
func (f *family) readNeed(ctx context.Context, _ tool.Invocation, _ any) (tool.Need, error) {
	n := f.host.Roots.ReadNeed("")
	n.Tier = string(f.host.Tier(ctx))
	return n, nil
}
