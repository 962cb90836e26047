package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Limits of what a module reads at once.
const (
	maxFile    = 8 << 20 // bytes
	maxEntries = 10_000  // of a folder
)

var (
	openFileSpec   = located(reading("host_filesystem_open_file", "Finds a file for a module.", reflect.TypeFor[placeArgs]()))
	openFolderSpec = located(reading("host_filesystem_open_directory", "Finds a folder for a module.", reflect.TypeFor[placeArgs]()))
	listSpec       = located(reading("host_filesystem_list", "Lists a folder for a module.", reflect.TypeFor[placeArgs]()))
	readSpec       = located(reading("host_filesystem_read", "Reads a text file for a module.", reflect.TypeFor[placeArgs]()))
	writeSpec      = filesWritten(located(changing("host_filesystem_write", "Writes a text file for a module.", domain.EffectWrite, reflect.TypeFor[writeArgs]())))
)

func located(s tool.Spec) tool.Spec {
	s.Path = "path"
	return s
}

func filesWritten(s tool.Spec) tool.Spec {
	s.Class, s.Writes = tool.ClassEdit, tool.WritesFiles
	return s
}

type placeArgs struct {
	Path string `json:"path,omitempty" jsonschema:"relative to the working folder, or absolute inside a folder that is granted"`
}

type writeArgs struct {
	Path string `json:"path"`
	Data string `json:"data"`
}

// handle is a file or a folder that a module has opened. Its id is its path: there is nothing to keep open.
type handle struct {
	HandleID string `json:"handleId"`
	Name     string `json:"name"`
	Kind     string `json:"kind"` // file, directory
}

type entry struct {
	Name string `json:"name"`
	Type string `json:"type"` // file, directory
	Path string `json:"path"` // can be used as it is
}

// place defines a method that reads at a path.
func (h *Host) place(s tool.Spec, otherwise string, do func(path string) (tool.Envelope, error)) (tool.Tool, error) {
	s.Canonical, s.StatKey = h.o.Roots.Canonical, h.o.Roots.StatKey
	s.Needs = tool.Needs(func(_ context.Context, _ tool.Invocation, a placeArgs) (tool.Need, error) {
		if a.Path == "" {
			a.Path = otherwise
		}
		return h.o.Roots.ReadNeed(filepath.Clean(a.Path)), nil
	})
	return tool.Define(s, func(_ context.Context, _ tool.Invocation, a placeArgs) (tool.Envelope, error) {
		if a.Path == "" {
			a.Path = otherwise
		}
		if a.Path == "" {
			return tool.Failure(tool.KindInvalidArgs, "no file started this run; name the path of one").WithField("path", "a path"), nil
		}

		e, err := do(a.Path)
		var bad *tool.PathError
		if errors.As(err, &bad) {
			return bad.Envelope(), nil
		}
		if err != nil {
			return tool.Failure(tool.KindExecutionError, "%s cannot be read: %v", a.Path, err), nil
		}
		return e, nil
	})
}

// openFile finds the file that started the run where no path is given: nobody is there who could choose one.
func (h *Host) openFile() (tool.Tool, error) {
	return h.place(openFileSpec, h.o.File, func(path string) (tool.Envelope, error) { return h.open(path, "file") })
}

func (h *Host) openFolder() (tool.Tool, error) {
	return h.place(openFolderSpec, ".", func(path string) (tool.Envelope, error) { return h.open(path, "directory") })
}

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

func (h *Host) listFolder() (tool.Tool, error) {
	return h.place(listSpec, ".", func(at string) (tool.Envelope, error) {
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
	})
}

func (h *Host) readFile() (tool.Tool, error) {
	return h.place(readSpec, "", func(path string) (tool.Envelope, error) {
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
	})
}

// writeFile writes as the agent itself does, so that it can be undone.
func (h *Host) writeFile() (tool.Tool, error) {
	if h.o.WriteFile == nil {
		return tool.Tool{}, errors.New("there is no file_write for it")
	}
	files, err := tool.NewRegistry(*h.o.WriteFile)
	if err != nil {
		return tool.Tool{}, err
	}

	name := h.o.WriteFile.Name()
	arguments := func(a writeArgs) (json.RawMessage, error) {
		return json.Marshal(map[string]string{"path": a.Path, "content": a.Data})
	}
	s := writeSpec
	s.Canonical = h.o.Roots.Canonical
	s.Needs = tool.Needs(func(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Need, error) {
		args, err := arguments(a)
		if err != nil {
			return tool.Need{}, err
		}
		return h.o.WriteFile.Need(ctx, in, args)
	})
	return tool.Define(s, func(ctx context.Context, in tool.Invocation, a writeArgs) (tool.Envelope, error) {
		args, err := arguments(a)
		if err != nil {
			return tool.Envelope{}, fmt.Errorf("the arguments of %s cannot be written: %w", name, err)
		}
		e, err := files.Call(ctx, in, name, args)
		if e.OK {
			e = tool.Success(value{}, e.Warnings...)
		}
		return e, err
	})
}
