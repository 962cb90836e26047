package file

import (
	"cmp"
	"context"
	"path/filepath"
	"reflect"
	"time"

	"rouse/agent/preview"
	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/ledger/artifact"
	"rouse/internal/ledger/fileop"
)

// Options configures the tools of one run.
type Options struct {
	Roots *tool.Roots
	// Wanted reports whether to create a tool. If nil, all tools are created.
	Wanted    func(name string) bool
	Log       *fileop.FileOps     // records changes, with the previous contents
	Artifacts *artifact.Artifacts // stores shared content
	Locks     *tool.Locks         // shared by all runs and by undo
	// ContentOnly stops share_artifact from reading paths, for an agent without files.
	ContentOnly bool
	Allow       []string // tool globs of the agent; an alias must be named
	// Redact removes secrets from shared content and from shortened text. Optional.
	Redact func(text string) string
	// RedactReads also redacts file content that is read. It is set for a model. A playbook gets
	// the content unchanged.
	RedactReads bool
	// Viewer shows binary files. If nil, PDF, XLSX and BMP files are refused.
	Viewer *preview.Viewer
	// Since parses the argument since. If nil, only RFC 3339 times and durations are accepted.
	Since func(written string) (time.Time, error)
	Zone  *time.Location // time zone of listings; nil means UTC
}

// files holds the tools of one run.
type files struct {
	Options
	roots     *tool.Roots
	log       *fileop.FileOps
	artifacts *artifact.Artifacts
	locks     *tool.Locks
	viewer    *preview.Viewer
	redact    func(text string) string
	hidden    func(text string) string // redacts content that is read
}

// member is a tool of the package, and the function that creates it for one run.
type member struct {
	spec   tool.Spec
	define func(*files, tool.Spec) (tool.Tool, error)
}

var members = []member{
	taking(readSpec, (*files).read),
	taking(writeSpec, (*files).write, (*files).writeNeed),
	taking(editSpec, (*files).edit),
	taking(moveSpec, (*files).move, func(f *files, a transferArgs) (tool.Access, error) { return f.transferNeed(a, true) }),
	taking(copySpec, (*files).copy, func(f *files, a transferArgs) (tool.Access, error) { return f.transferNeed(a, false) }),
	taking(deleteSpec, (*files).deletePath, func(f *files, a deleteArgs) (tool.Access, error) {
		return f.roots.RemoveNeed(filepath.Clean(a.Path)), nil
	}),
	taking(folderSpec, (*files).makeFolder),
	taking(searchSpec, (*files).fileSearch),
	taking(historySpec, (*files).history),
	taking(undoSpec, (*files).undo),
	taking(shareSpec, (*files).share, func(f *files, a shareArgs) (tool.Access, error) {
		return f.roots.ReadNeed(filepath.Clean(a.Path)), f.checkShare(a)
	}),
	taking(alias(readSpec, tool.Spec{Name: "read_file", Description: readAliasText, Class: tool.ClassRead, Paging: paged("offset"), Example: `{"path":"report.md","limit":50}`}), (*files).readAlias),
	taking(alias(writeSpec, tool.Spec{Name: "write_file", Description: writeAliasText, Class: tool.ClassEdit, Enum: writeSpec.Enum, Example: writeSpec.Example}), (*files).write, (*files).writeNeed),
	taking(alias(editSpec, tool.Spec{Name: "edit_file", Description: editAliasText, Class: tool.ClassEdit, Example: `{"path":"report.md","old_text":"draft","new_text":"final"}`}), (*files).editAlias),
	taking(alias(searchSpec, tool.Spec{Name: "list_files", Description: listAliasText, Class: tool.ClassList, Example: `{"pattern":"*.csv"}`}), (*files).listAlias),
	taking(alias(searchSpec, tool.Spec{Name: "search", Description: searchAliasText, Class: tool.ClassSearch, Example: `{"pattern":"total: [0-9]+","include":"*.md"}`}), (*files).searchAlias),
}

// taking returns a member with arguments of type A. need replaces the default need, which is access
// to the path argument.
func taking[A any](s tool.Spec, run func(*files, context.Context, tool.Invocation, A) (tool.Envelope, error), need ...func(*files, A) (tool.Access, error)) member {
	s.Args = reflect.TypeFor[A]()
	return member{s, func(f *files, s tool.Spec) (tool.Tool, error) {
		s.Access = f.roots.PathNeeds(s.Effect == domain.EffectWrite)
		if len(need) > 0 {
			s.Access = tool.AccessOf(func(_ context.Context, _ tool.Invocation, a A) (tool.Access, error) { return need[0](f, a) })
		}
		return tool.Define(s, func(ctx context.Context, in tool.Invocation, a A) (tool.Envelope, error) { return run(f, ctx, in, a) })
	}}
}

// reading adds the properties of a read-only tool to a spec.
func reading(name, description string, class tool.Class, s tool.Spec) tool.Spec {
	s.Name, s.Description, s.Class, s.Effect, s.Writes = name, description, class, domain.EffectRead, tool.WritesNothing
	s.Scope, s.Path = tool.ScopeAgent, "path"
	return s
}

// changing adds to a spec the properties of a tool that changes the file at its path.
func changing(name, description string, s tool.Spec) tool.Spec {
	s.Name, s.Description, s.Class, s.Effect, s.Writes = name, description, tool.ClassEdit, domain.EffectWrite, cmp.Or(s.Writes, tool.WritesFiles)
	s.Scope, s.Path = tool.ScopeAgent, cmp.Or(s.Path, "path")
	return s
}

// alias returns the spec of a tool with the name, texts and arguments of another tool.
func alias(of, as tool.Spec) tool.Spec {
	of.AliasOf, of.Name, of.Description, of.Class, of.Brief = of.Name, as.Name, as.Description, as.Class, ""
	of.Enum, of.Paging, of.Example = as.Enum, as.Paging, as.Example
	return of
}

// Specs returns the specs of the file tools.
func Specs() tool.Specs {
	var out tool.Specs
	for _, m := range members {
		out = append(out, m.spec)
	}
	return out
}

// WriteName returns the name of the tool that writes a file as a whole.
func WriteName() string { return writeSpec.Name }

// Tools creates the file tools of one run.
func Tools(o Options) ([]tool.Tool, error) {
	unchanged := func(text string) string { return text }
	o.Zone = cmp.Or(o.Zone, time.UTC)
	f := &files{Options: o, roots: o.Roots, log: o.Log, artifacts: o.Artifacts, locks: o.Locks, viewer: o.Viewer, redact: o.Redact}
	if f.redact == nil {
		f.redact = unchanged
	}
	if f.hidden = f.redact; !o.RedactReads {
		f.hidden = unchanged
	}

	var out []tool.Tool
	for _, m := range members {
		if m.spec.AliasOf != "" && !tool.IsNamed(o.Allow, m.spec.Name) || o.Wanted != nil && !o.Wanted(m.spec.Name) {
			continue
		}
		s := m.spec
		if s.Path != "" {
			s.Canonical = o.Roots.Canonical
		}
		if s.Path != "" && s.Effect == domain.EffectRead { // results are reused while a file is unchanged
			s.StatKey = o.Roots.StatKey
		}
		t, err := m.define(f, s)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}
