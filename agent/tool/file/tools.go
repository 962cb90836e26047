package file

import (
	"cmp"
	"context"
	"reflect"
	"time"

	"rouse/agent/preview"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Log records what was done to files, and stores what was shared. *ledger.Ledger is one.
type Log interface {
	AddFileOp(ctx context.Context, a ledger.Attempt, op ledger.FileOp, before []byte) (ledger.FileOp, error)
	AddFileOps(ctx context.Context, a ledger.Attempt, ops []ledger.FileOp, before [][]byte) error
	DeleteFileOp(ctx context.Context, id int64) error
	MarkFileOpUndone(ctx context.Context, id int64) error
	FileOps(ctx context.Context, f ledger.FileOpFilter) ([]ledger.FileOp, error)
	FileBefore(ctx context.Context, id int64) ([]byte, error)
	SavedFileBytes(ctx context.Context, run int64) (int64, error)
	AddArtifact(ctx context.Context, at ledger.Attempt, a ledger.Artifact, content []byte) (ledger.Artifact, error)
	Artifacts(ctx context.Context, runs ...int64) ([]ledger.Artifact, error)
}

// Options configure the tools of one run.
type Options struct {
	Roots *tool.Roots
	// Wanted says whether a tool is made; nil: all are.
	Wanted func(name string) bool
	Log    Log
	Locks  *tool.Locks // of all runs, and of all that undoes what they wrote
	// ContentOnly keeps share_artifact from reading paths, for an agent without files.
	ContentOnly bool
	Allow       []string // the agent's globs of tools; an alias needs one that asks for it
	// Redact removes secrets from what is shared, and from what is cut; nil: there are none.
	Redact func(text string) string
	// RedactReads also removes them from all that is read, before it is cut: for a model. A playbook passes what
	// it reads on as it is.
	RedactReads bool
	// Viewer shows what is not text; nil: PDF, spreadsheets and BMP are refused.
	Viewer *preview.Viewer
	// Since parses the argument since. If nil, only RFC 3339 times and durations are accepted.
	Since func(written string) (time.Time, error)
	Zone  *time.Location // of the times in listings; nil means UTC
}

type files struct {
	since  func(written string) (time.Time, error)
	zone   *time.Location
	roots  *tool.Roots
	log    Log
	locks  *tool.Locks
	redact func(text string) string
	hidden func(text string) string // what is read, as it is shown
	viewer *preview.Viewer

	contentOnly bool
}

// member is a tool of the family, and the function that makes it for one run.
type member struct {
	spec   tool.Spec
	define func(*files, tool.Spec) (tool.Tool, error)
}

var members = []member{
	taking[readArgs](readSpec, (*files).readTool),
	taking[writeArgs](writeSpec, (*files).writeTool),
	taking[editArgs](editSpec, (*files).editTool),
	taking[transferArgs](moveSpec, (*files).moveTool),
	taking[transferArgs](copySpec, (*files).copyTool),
	taking[deleteArgs](deleteSpec, (*files).deleteTool),
	taking[folderArgs](folderSpec, (*files).folderTool),
	taking[searchArgs](searchSpec, (*files).searchTool),
	taking[historyArgs](historySpec, (*files).historyTool),
	taking[undoArgs](undoSpec, (*files).undoTool),
	taking[shareArgs](shareSpec, (*files).shareTool),
	taking[readAliasArgs](paged(alias(readSpec, "read_file", readAliasText, tool.ClassRead), "offset"), (*files).readAlias),
	taking[writeArgs](withEnum(alias(writeSpec, "write_file", writeAliasText, tool.ClassEdit), writeSpec.Enum), (*files).writeTool),
	taking[editAliasArgs](alias(editSpec, "edit_file", editAliasText, tool.ClassEdit), (*files).editAlias),
	taking[listAliasArgs](alias(searchSpec, "list_files", listAliasText, tool.ClassList), (*files).listAlias),
	taking[searchAliasArgs](alias(searchSpec, "search", searchAliasText, tool.ClassSearch), (*files).searchAlias),
}

// taking is the member whose arguments are an A.
func taking[A any](s tool.Spec, define func(*files, tool.Spec) (tool.Tool, error)) member {
	s.Args, s.Example = reflect.TypeFor[A](), examples[s.Name]
	return member{s, define}
}

// reading is the spec of a tool that changes nothing.
func reading(name, description string, class tool.Class) tool.Spec {
	return tool.Spec{
		Name: name, Description: description, Effect: domain.EffectRead, Class: class, Scope: tool.ScopeAgent, Writes: tool.WritesNothing, Path: "path",
	}
}

// changing is the spec of a tool that changes the file at its path.
func changing(name, description string, writes tool.Writes) tool.Spec {
	return tool.Spec{
		Name: name, Description: description, Effect: domain.EffectWrite, Class: tool.ClassEdit, Scope: tool.ScopeAgent, Writes: writes, Path: "path",
	}
}

// inBrief gives a tool the sentence that a model with a small context reads of it.
func inBrief(s tool.Spec, text string) tool.Spec {
	s.Brief = text
	return s
}

// alias is the spec of a tool under another name, with arguments of its own.
func alias(of tool.Spec, name, description string, class tool.Class) tool.Spec {
	of.Name, of.AliasOf, of.Description, of.Brief, of.Class, of.Enum = name, of.Name, description, "", class, nil
	return of
}

// withEnum bounds what string arguments of a tool may be.
func withEnum(s tool.Spec, values map[string][]string) tool.Spec {
	s.Enum = values
	return s
}

// withSynonyms has a tool take arguments by the names that they have in another family, too.
func withSynonyms(s tool.Spec, pairs ...[2]string) tool.Spec {
	s.Synonyms = pairs
	return s
}

// onDemand keeps a tool out of the list that models get.
func onDemand(s tool.Spec) tool.Spec {
	s.OnDemand = true
	return s
}

// core marks a tool that every model is told of.
func core(s tool.Spec) tool.Spec {
	s.Core = true
	return s
}

// Specs lists the tools of the family.
func Specs() tool.Specs {
	var out tool.Specs
	for _, m := range members {
		out = append(out, m.spec)
	}
	return out
}

// WriteName is the tool that writes a file as a whole.
func WriteName() string { return writeSpec.Name }

// Tools makes the file tools of one run.
func Tools(o Options) ([]tool.Tool, error) {
	f := &files{roots: o.Roots, log: o.Log, locks: o.Locks, redact: o.Redact, viewer: o.Viewer, since: o.Since, zone: cmp.Or(o.Zone, time.UTC), contentOnly: o.ContentOnly}
	if f.redact == nil {
		f.redact = func(text string) string { return text }
	}

	if f.hidden = f.redact; !o.RedactReads {
		f.hidden = func(text string) string { return text }
	}

	var out []tool.Tool
	for _, m := range members {
		if m.spec.AliasOf != "" && !tool.IsNamed(o.Allow, m.spec.Name) || o.Wanted != nil && !o.Wanted(m.spec.Name) {
			continue
		}

		t, err := m.define(f, f.bound(m.spec))
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}

	return out, nil
}

// bound adds to a spec what only the run knows.
func (f *files) bound(s tool.Spec) tool.Spec {
	s.Needs = f.roots.PathNeeds(s.Effect == domain.EffectWrite)
	if s.Path == "" {
		return s
	}

	// Only the answers of reads are reused while a file stays the same.
	s.Canonical = f.roots.Canonical
	if s.Effect == domain.EffectRead {
		s.StatKey = f.roots.StatKey
	}
	return s
}
