package file

import (
	"context"

	"rouse/agent/preview"
	"rouse/agent/tool"
	"rouse/agentdb/ledger"
	"rouse/internal/domain"
)

// Log records what was done to files, and stores what was shared. *ledger.Ledger is one.
type Log interface {
	AddFileOp(ctx context.Context, a ledger.Attempt, op ledger.FileOp, before []byte) (ledger.FileOp, error)
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
	Log   Log
	Allow []string // the agent's globs of tools; an alias needs one that asks for it
	// Redact removes secrets from what is shared; nil: there are none.
	Redact func(text string) string
	// Viewer shows what is not text; nil: PDF, spreadsheets and BMP are refused.
	Viewer *preview.Viewer
}

type files struct {
	roots  *tool.Roots
	log    Log
	redact func(text string) string
	viewer *preview.Viewer
}

// member is a tool of the family, and the function that makes it for one run.
type member struct {
	spec   tool.Spec
	define func(*files, tool.Spec) (tool.Tool, error)
}

var members = []member{
	{readSpec, (*files).readTool},
	{writeSpec, (*files).writeTool},
	{editSpec, (*files).editTool},
	{searchSpec, (*files).searchTool},
	{historySpec, (*files).historyTool},
	{undoSpec, (*files).undoTool},
	{shareSpec, (*files).shareTool},
	{alias(readSpec, "read_file", readAliasText, tool.ClassRead), (*files).readAlias},
	{alias(writeSpec, "write_file", writeAliasText, tool.ClassEdit), (*files).writeAlias},
	{alias(editSpec, "edit_file", editAliasText, tool.ClassEdit), (*files).editAlias},
	{alias(searchSpec, "list_files", listAliasText, tool.ClassList), (*files).listAlias},
	{alias(searchSpec, "search", searchAliasText, tool.ClassSearch), (*files).searchAlias},
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

// alias is the spec of a tool under another name, with arguments of its own.
func alias(of tool.Spec, name, description string, class tool.Class) tool.Spec {
	of.Name, of.AliasOf, of.Description, of.Class, of.Enum = name, of.Name, description, class, nil
	return of
}

// wideContextOnly leaves a tool out of the list for models with a narrow context.
func wideContextOnly(s tool.Spec) tool.Spec {
	s.WideContextOnly = true
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

// Tools makes the file tools of one run.
func Tools(o Options) ([]tool.Tool, error) {
	f := &files{o.Roots, o.Log, o.Redact, o.Viewer}
	if f.redact == nil {
		f.redact = func(text string) string { return text }
	}

	var out []tool.Tool
	for _, m := range members {
		if m.spec.AliasOf != "" && !tool.IsNamed(o.Allow, m.spec.Name) {
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
