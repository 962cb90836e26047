package moduleapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
	"rouse/internal/domain"
	"rouse/internal/text"
)

// Limits of one read of a module.
const (
	maxFile    = 8 << 20 // bytes
	maxEntries = 10_000  // entries of a folder
)

var (
	openFileSpec   = reading("host_filesystem_open_file", "Finds a file for a module.", tool.Spec{Path: "path"})
	openFolderSpec = reading("host_filesystem_open_directory", "Finds a folder for a module.", tool.Spec{Path: "path"})
	listSpec       = reading("host_filesystem_list", "Lists a folder for a module.", tool.Spec{Path: "path"})
	readSpec       = reading("host_filesystem_read", "Reads a text file for a module.", tool.Spec{Path: "path"})
	writeSpec      = changing("host_filesystem_write", "Writes a text file for a module.", tool.Spec{
		Path: "path", Args: reflect.TypeFor[writeArgs](), Effect: domain.EffectWrite, Class: tool.ClassEdit, Writes: tool.WritesFiles,
	})
)

type placeArgs struct {
	Path string `json:"path,omitempty" jsonschema:"relative to the working folder, or absolute inside a folder that is granted"`
}

type writeArgs struct {
	Path string `json:"path"`
	Data string `json:"data"`
}

// handle is a file or a folder that a module has opened. Its id is its path.
type handle struct {
	HandleID string `json:"handleId"`
	Name     string `json:"name"`
	Kind     string `json:"kind"` // file, directory
}

type entry struct {
	Name string `json:"name"`
	Type string `json:"type"` // file, directory
	Path string `json:"path"` // usable as an argument
}

// placeTool returns a tool that reads a path. otherwise returns the default path.
func placeTool(s tool.Spec, otherwise func(*Host) string, do func(h *Host, path string) (tool.Envelope, error)) member {
	s.Args = reflect.TypeFor[placeArgs]()
	return member{s, func(h *Host, s tool.Spec) (tool.Tool, error) {
		s.Canonical, s.StatKey = h.o.Roots.Canonical, h.o.Roots.StatKey
		s.Access = tool.AccessOf(func(_ context.Context, _ tool.Invocation, a placeArgs) (tool.Access, error) {
			return h.o.Roots.ReadNeed(filepath.Clean(cmp.Or(a.Path, otherwise(h)))), nil
		})
		return tool.Define(s, func(_ context.Context, _ tool.Invocation, a placeArgs) (tool.Envelope, error) {
			path := cmp.Or(a.Path, otherwise(h))
			if path == "" {
				return tool.Envelope{}, tool.Refuse(tool.KindInvalidArgs, "no file started this run; name the path of one").WithField("path", "a path")
			}
			e, err := do(h, path)
			if err != nil && !errors.As(err, new(*tool.Refusal)) {
				err = tool.Refuse(tool.KindExecutionError, "%s cannot be read: %v", path, err)
			}
			return e, err
		})
	}}
}

// openFile opens a file. If no path is given, it opens the file that started the run, because there
// is no file dialog in which a person could choose one.
func (h *Host) openFile(path string) (tool.Envelope, error) { return h.open(path, "file") }

func (h *Host) openFolder(path string) (tool.Envelope, error) { return h.open(path, "directory") }

func (h *Host) open(path, kind string) (tool.Envelope, error) {
	f, err := h.o.Roots.Open(path)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer f.Close()

	info, err := f.Stat()
	if err != nil {
		return tool.Envelope{}, err
	}
	if info.IsDir() != (kind == "directory") {
		return tool.Failure(tool.KindInvalidArgs, "%s is no %s", path, kind).WithField("path", "the path of a "+kind), nil
	}
	return tool.Success(handle{path, filepath.Base(path), kind}), nil
}

func (h *Host) listFolder(at string) (tool.Envelope, error) {
	p, err := h.o.Roots.Resolve(at, false)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer p.Close()
	f, err := p.OpenChecked()
	if err != nil {
		return tool.Envelope{}, err
	}
	defer f.Close()

	found, err := f.ReadDir(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return tool.Envelope{}, p.Explain(err)
	}
	if len(found) > maxEntries {
		return tool.Failure(tool.KindRejected, "%s holds more than %d entries", at, maxEntries), nil
	}

	out := []entry{}
	for _, e := range found {
		if p.IsHidden(filepath.Join(p.Rel, e.Name())) {
			continue
		}
		kind := "file"
		if e.IsDir() {
			kind = "directory"
		}
		out = append(out, entry{e.Name(), kind, path.Join(filepath.ToSlash(at), e.Name())})
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return tool.Success(value{out}), nil
}

func (h *Host) readFile(path string) (tool.Envelope, error) {
	f, err := h.o.Roots.Open(path)
	if err != nil {
		return tool.Envelope{}, err
	}
	defer f.Close()

	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return tool.Envelope{}, err
	case len(raw) > maxFile:
		return tool.Failure(tool.KindRejected, "%s is larger than %s, and a module reads no more at once", path, text.Size(maxFile)), nil
	case !utf8.Valid(raw):
		return tool.Failure(tool.KindRejected, "%s is not UTF-8 text", path), nil
	}
	return tool.Success(value{string(raw)}), nil
}

// writeFile writes with the agent's file_write, so that the change can be undone.
func (h *Host) writeFile(s tool.Spec) (tool.Tool, error) {
	if h.o.WriteFile == nil {
		return tool.Tool{}, errors.New("there is no file_write for it")
	}
	files, err := tool.NewRegistry(*h.o.WriteFile)
	if err != nil {
		return tool.Tool{}, err
	}

	arguments := func(a writeArgs) (json.RawMessage, error) {
		return json.Marshal(map[string]string{"path": a.Path, "content": a.Data})
	}
	s.Canonical = h.o.Roots.Canonical
	s.Access = tool.AccessOf(func(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Access, error) {
		args, err := arguments(a)
		if err != nil {
			return tool.Access{}, err
		}
		return h.o.WriteFile.Access(ctx, in, args)
	})
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Envelope, error) {
		args, err := arguments(a)
		if err != nil {
			return tool.Envelope{}, err
		}
		e, err := files.Call(ctx, in, h.o.WriteFile.Name(), args)
		if e.OK {
			e = tool.Success(value{}, e.Warnings...)
		}
		return e, err
	})
}
