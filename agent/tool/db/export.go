package db

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"rouse/agent/tool"
	"rouse/agentdb"
)

type exportArgs struct {
	SQL       string `json:"sql" jsonschema:"one SELECT"`
	Params    any    `json:"params,omitempty" jsonschema:"a list of values for ?, or an object of values for :name"`
	Path      string `json:"path" jsonschema:"relative to the working folder, or absolute inside a folder granted for writing"`
	Format    string `json:"format,omitempty" jsonschema:"by the name of the file when absent; csv if that says none"`
	Overwrite bool   `json:"overwrite,omitempty" jsonschema:"replace an existing file; default false"`
}

// exportResult is what OSA-59 answers.
type exportResult struct {
	Path string `json:"path"`
	agentdb.Exported
}

// exportTool is db_export. It takes turns with other calls that write the same path.
func (o Options) exportTool() (tool.Tool, error) {
	text, err := descriptions.ReadFile("export.md")
	if err != nil {
		return tool.Tool{}, fmt.Errorf("tool db_export has no description: %w", err)
	}
	spec := tool.Spec{Name: "db_export", Description: string(text), Effect: tool.Write, Class: tool.ClassData, Path: "path", Canonical: o.Roots.Canonical,
		Enum: map[string][]string{"format": fileFormats}, Needs: o.needs(true, true)}
	return tool.Define(spec, func(ctx context.Context, in tool.Invocation, a exportArgs) (tool.Envelope, error) {
		db, release, err := o.Pool.Get(ctx, in.Agent)
		if err != nil {
			return tool.Envelope{}, err
		}
		defer release()
		result, warnings, err := o.exportFile(ctx, db, a)
		return answer(result, warnings, err)
	})
}

// fileFormats are those of db_import and db_export.
var fileFormats = []string{"csv", "tsv", "json", "jsonl", "ndjson", "xlsx"}

func (o Options) exportFile(ctx context.Context, db *agentdb.DB, a exportArgs) (any, []string, error) {
	spec := agentdb.ExportSpec{SQL: a.SQL, Format: a.Format, Name: a.Path}
	var err error
	if spec.Params, spec.Named, err = splitParams(a.Params); err != nil {
		return nil, nil, err
	}
	place, err := o.Roots.At(a.Path, true)
	if err != nil {
		return nil, nil, err
	}
	defer place.Close()
	old, err := replaceable(place, a)
	if err != nil {
		return nil, nil, err
	}
	done, temp, err := draft(ctx, place, db, spec)
	if err != nil {
		return nil, nil, err
	}
	if err := place.Announce(ctx, temp); err != nil {
		return nil, nil, errors.Join(err, place.Remove(temp))
	}
	if err := publish(place, a, temp, old); err != nil {
		return nil, nil, place.Explain(err)
	}
	warnings := done.Warnings
	done.Warnings = nil
	return exportResult{a.Path, done}, warnings, nil
}

// replaceable looks at what is there now; nil is nothing.
func replaceable(p *tool.Place, a exportArgs) (fs.FileInfo, error) {
	info, err := p.Lstat(p.Rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, p.Explain(err)
	}
	switch {
	case info.IsDir():
		return nil, &tool.PathError{Kind: tool.KindInvalidArgs, Message: a.Path + " is a folder; name a file in it"}
	case !a.Overwrite:
		return nil, &tool.PathError{Kind: tool.KindRejected, Message: a.Path + " exists already; choose another name, or say overwrite true"}
	case info.Mode().Perm()&0o200 == 0:
		return nil, &tool.PathError{Kind: tool.KindRejected, Message: a.Path + " is marked read-only"}
	}
	file, err := p.OpenPlain() // refuses links, pipes and second names of other files
	if err != nil {
		return nil, err
	}
	return info, file.Close()
}

// draft makes the file whole before it takes its name, so no reader sees half of it.
func draft(ctx context.Context, p *tool.Place, db *agentdb.DB, spec agentdb.ExportSpec) (done agentdb.Exported, temp string, err error) {
	folder := filepath.Dir(p.Rel)
	if folder != "." {
		if err := p.MkdirAll(folder, 0o755); err != nil {
			return done, "", p.Explain(err)
		}
	}
	if err := p.Guard(); err != nil {
		return done, "", err
	}
	temp = filepath.Join(folder, ".rouse-"+rand.Text()+".tmp") // hidden: no watch takes it
	file, err := p.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return done, "", p.Explain(err)
	}
	done, err = db.Export(ctx, spec, file)
	var unwritable *fs.PathError
	if errors.As(err, &unwritable) { // a full disk, say: another folder may do
		err = p.Explain(err)
	}
	if err == nil {
		if err = file.Sync(); err != nil {
			err = p.Explain(err)
		}
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return done, "", errors.Join(err, p.Remove(temp))
	}
	return done, temp, nil
}

// publish gives the draft its name, unless somebody else took or changed that meanwhile.
func publish(p *tool.Place, a exportArgs, temp string, old fs.FileInfo) error {
	now, err := p.Lstat(p.Rel)
	switch {
	case old == nil && errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil && (old == nil || !os.SameFile(now, old) || !now.ModTime().Equal(old.ModTime())):
		err = &tool.PathError{Kind: tool.KindExecutionError, Message: a.Path + " was written meanwhile, and was left as it is now"}
	}
	if err == nil {
		err = p.Rename(temp, p.Rel)
	}
	if err != nil {
		return errors.Join(err, p.Remove(temp))
	}
	if runtime.GOOS == "windows" {
		return nil // it has no way to make a name last
	}
	dir, err := p.Open(filepath.Dir(p.Rel))
	if err != nil {
		return fmt.Errorf("%s was written, but its folder cannot be opened: %w", a.Path, err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// splitParams tells the two ways of giving values apart.
func splitParams(params any) (list []any, named map[string]any, err error) {
	switch params := params.(type) {
	case nil:
		return nil, nil, nil
	case []any:
		return params, nil, nil
	case map[string]any:
		return nil, params, nil
	}
	return nil, nil, &agentdb.Error{Kind: string(tool.KindInvalidArgs), Field: "params", Message: "params must be a list of values for ?, or an object of values for :name", Retryable: true}
}
