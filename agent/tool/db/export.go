package db

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"reflect"

	"rouse/agent/tool"
	"rouse/agentdb"
	"rouse/internal/atomicfile"
	"rouse/internal/domain"
	"rouse/internal/owner"
)

type exportArgs struct {
	SQL       string      `json:"sql"`
	Params    tool.Values `json:"params,omitempty"`
	Path      string      `json:"path"`
	Format    string      `json:"format,omitempty" jsonschema:"default: by the name of the file, else csv"`
	Overwrite bool        `json:"overwrite,omitempty"`
}

// exportResult is the result of db_export.
type exportResult struct {
	Path string `json:"path"`
	agentdb.Exported
}

// exportSpec is the spec of db_export. Calls that write the same path run one after the other. The
// overwritten content is not stored, so undo cannot restore it.
var exportSpec = tool.Spec{
	Name: "db_export", Description: describe("db_export"), Effect: domain.EffectWrite, Class: tool.ClassData, Example: examples["db_export"], Scope: tool.ScopeAgent, Writes: tool.WritesElsewhere,
	Args: reflect.TypeFor[exportArgs](), Requires: tool.RequiresDatabase, Path: "path", Enum: map[string][]string{"format": fileFormats},
}

func (o Options) exportTool(s tool.Spec) (tool.Tool, error) {
	s.Canonical = o.Roots.Canonical
	writes := o.Roots.PathNeeds(true)
	s.Access = func(ctx context.Context, in tool.Invocation, args json.RawMessage) (tool.Access, error) {
		n, err := writes(ctx, in, args)
		rows := o.readNeed(in.Agent)
		n.AddsTaint, n.Reads = n.AddsTaint|rows.AddsTaint, append(n.Reads, rows.Reads...)
		n.Bind = o.bindDatabase(ctx, in.Agent, n.Bind)
		return n, err
	}
	return withDatabase(Options.exportFile)(o, s)
}

// fileFormats are the formats of db_import and db_export.
var fileFormats = []string{"csv", "tsv", "json", "jsonl", "ndjson", "xlsx"}

func (o Options) exportFile(ctx context.Context, db *agentdb.DB, _ tool.Invocation, a exportArgs) (any, []string, error) {
	spec := agentdb.ExportSpec{SQL: a.SQL, Params: a.Params.List, Named: a.Params.Named, Format: a.Format, Name: a.Path}

	place, err := o.Roots.Resolve(a.Path, true)
	if err != nil {
		return nil, nil, err
	}
	defer place.Close()

	old, err := replaceable(place, a)
	if err != nil {
		return nil, nil, err
	}

	done, file, err := writeTemp(ctx, place, db, spec)
	if err != nil {
		return nil, nil, err
	}
	// Announce the file right before the rename. A watch must not see it before the file is
	// recorded as the job's own output.
	if err := place.Announce(ctx, file.TempName()); err != nil {
		if domain.IsFileFault(err) {
			err = place.Explain(err)
		}
		return nil, nil, errors.Join(err, file.Abort())
	}
	if err := o.commit(ctx, place, a, file, old); err != nil {
		return nil, nil, place.Explain(err)
	}

	warnings := done.Warnings
	done.Warnings = nil
	return exportResult{a.Path, done}, warnings, nil
}

// replaceable returns the existing file, or nil if the file does not exist. It returns an error if
// the file must not be replaced.
func replaceable(p *tool.FileHandle, a exportArgs) (fs.FileInfo, error) {
	info, err := p.Lstat(p.Rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, p.Explain(err)
	}

	switch {
	case info.IsDir():
		return nil, tool.RefusePath(tool.KindInvalidArgs, "%s is a folder; name a file in it", a.Path)
	case !a.Overwrite:
		return nil, tool.RefusePath(tool.KindRejected, "%s exists already; choose another name, or say overwrite true", a.Path)
	// The rename would succeed, because it only needs write access to the folder. The owner's
	// read-only mark is respected anyway.
	case info.Mode().Perm()&0o200 == 0:
		return nil, tool.RefusePath(tool.KindRejected, "%s is marked read-only", a.Path)
	}

	// Opened only for its checks, which refuse links, pipes and hard links.
	file, err := p.OpenChecked()
	if err != nil {
		return nil, err
	}

	return info, file.Close()
}

// writeTemp writes the whole export to a temporary file, so that readers never see a partial file.
func writeTemp(ctx context.Context, p *tool.FileHandle, db *agentdb.DB, spec agentdb.ExportSpec) (done agentdb.Exported, file *atomicfile.File, err error) {
	if file, err = p.Create(); err != nil {
		return done, nil, p.Explain(err)
	}

	// Chmod, because the umask reduces the mode given at creation.
	if err = file.Chmod(owner.ApplyUmask(0o644)); err == nil {
		done, err = db.Export(ctx, spec, file)
	}
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		return done, file, nil
	}

	var unwritable *fs.PathError
	// For example a full disk. The agent can choose another folder, so the run need not end.
	if errors.As(err, &unwritable) {
		err = p.Explain(err)
	}

	return done, nil, errors.Join(err, file.Abort())
}

// commit renames the temporary file to its final name, unless the file there has changed in the
// meantime.
func (o Options) commit(ctx context.Context, p *tool.FileHandle, a exportArgs, file *atomicfile.File, old fs.FileInfo) error {
	release, err := o.Locks.Acquire(ctx, o.Roots.Canonical(a.Path))
	if err != nil {
		return errors.Join(err, file.Abort())
	}
	defer release()

	now, err := p.Lstat(p.Rel)
	switch {
	case old == nil && errors.Is(err, fs.ErrNotExist): // still no file, as expected
		err = nil
	case err == nil && (old == nil || !os.SameFile(now, old) || !now.ModTime().Equal(old.ModTime())):
		err = tool.RefusePath(tool.KindExecutionError, "%s was written meanwhile, and was left as it is now", a.Path)
	}
	if err != nil {
		return errors.Join(err, file.Abort())
	}

	return file.Commit()
}
