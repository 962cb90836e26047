package file

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"rouse/agent/tool"
)

//go:embed read.md
var readText string

// Limits of file_read (OSA-31).
const (
	maxChars      = 15_000
	maxRaw        = 5 << 20
	sniff         = 4 << 10
	maxEntries    = 300
	maxPerFolder  = 20
	maxCandidates = 5
	maxVisited    = 20_000
)

// Tools are file_read and file_write on the roots of one run.
func Tools(roots *tool.Roots) ([]tool.Tool, error) {
	f := &files{roots}
	read, err := tool.Define(tool.Spec{Name: "file_read", Description: readText, Effect: tool.Read}, f.read)
	if err != nil {
		return nil, err
	}
	write, err := tool.Define(tool.Spec{Name: "file_write", Description: writeText, Effect: tool.Write, Path: "path",
		Enum: map[string][]string{"mode": {"overwrite", "append"}}}, f.write)
	if err != nil {
		return nil, err
	}
	return []tool.Tool{read, write}, nil
}

type files struct{ roots *tool.Roots }

type readArgs struct {
	Path      string `json:"path" jsonschema:"relative to the working folder, or absolute inside a granted folder"`
	StartLine int    `json:"start_line,omitempty"`
	EndLine   int    `json:"end_line,omitempty"`
	TailLines int    `json:"tail_lines,omitempty" jsonschema:"the last lines instead"`
	MaxChars  int    `json:"max_chars,omitempty"`
	MaxDepth  int    `json:"max_depth,omitempty" jsonschema:"of a folder listing; default 3"`
}

type readResult struct {
	Kind            string `json:"kind"` // file
	Path            string `json:"path"`
	Text            string `json:"text"`
	TotalLines      int    `json:"total_lines"`
	Truncated       bool   `json:"truncated"`
	NextStartLine   int    `json:"next_start_line,omitempty"`
	NextEndLine     int    `json:"next_end_line,omitempty"`
	EndsWithNewline bool   `json:"ends_with_newline"`
}

type entry struct {
	Name string `json:"name"`
	Path string `json:"path"`
	Type string `json:"type"` // file, directory
}

type listing struct {
	Kind       string  `json:"kind"` // listing
	Path       string  `json:"path"`
	Entries    []entry `json:"entries"`
	EntryCount int     `json:"entry_count"`
	Truncated  bool    `json:"truncated"`
}

func (f *files) read(_ context.Context, _ tool.Invocation, a readArgs) (tool.Envelope, error) {
	file, err := f.roots.Open(a.Path)
	var bad *tool.PathError
	if errors.As(err, &bad) {
		if bad.Kind == tool.KindNotFound {
			return f.missing(a.Path, bad), nil
		}
		return bad.Envelope(), nil
	}
	if err != nil {
		return tool.Failure(tool.KindExecutionError, "%s cannot be read: %v", a.Path, err), nil
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return tool.Failure(tool.KindExecutionError, "%s cannot be read: %v", a.Path, err), nil
	}
	if info.IsDir() {
		return f.list(a), nil
	}
	if info.Size() > maxRaw {
		return tool.Failure(tool.KindRejected, "%s has %d bytes, more than the %d that can be read at once", a.Path, info.Size(), maxRaw), nil
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRaw+1))
	if err != nil {
		return tool.Failure(tool.KindExecutionError, "%s cannot be read: %v", a.Path, err), nil
	}
	if bytes.IndexByte(text[:min(len(text), sniff)], 0) >= 0 || !utf8.Valid(text) {
		return tool.Failure(tool.KindRejected, "%s is not a text file", a.Path), nil
	}
	return lines(a, string(text)), nil
}

// lines cuts the wanted part and puts numbers before its lines: six wide, |, no space.
func lines(a readArgs, text string) tool.Envelope {
	res := readResult{Kind: "file", Path: a.Path, EndsWithNewline: strings.HasSuffix(text, "\n")}
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		all = nil
	}
	res.TotalLines = len(all)
	from, to := 1, len(all)
	switch {
	case a.StartLine < 0 || a.EndLine < 0 || a.TailLines < 0:
		return tool.Failure(tool.KindInvalidArgs, "line numbers begin at 1").WithField("start_line", "1 or more")
	case a.TailLines > 0 && (a.StartLine > 0 || a.EndLine > 0):
		return tool.Failure(tool.KindInvalidArgs, "give tail_lines or start_line and end_line, not both").WithField("tail_lines", "")
	case a.TailLines > 0:
		from = max(len(all)-a.TailLines+1, 1)
	default:
		if a.StartLine > 0 {
			from = a.StartLine
		}
		if a.EndLine > 0 {
			to = min(a.EndLine, len(all))
		}
	}
	if from > max(len(all), 1) || (a.EndLine > 0 && a.EndLine < from) {
		return tool.Failure(tool.KindInvalidArgs, "%s has %d lines; there is nothing from %d to %d", a.Path, len(all), from, a.EndLine).WithField("start_line", fmt.Sprintf("1 to %d", len(all)))
	}
	most := maxChars
	if a.MaxChars > 0 {
		most = min(a.MaxChars, maxChars)
	}
	var out strings.Builder
	n := from
	for ; n <= to; n++ {
		line := fmt.Sprintf("%6d|%s\n", n, strings.TrimSuffix(all[n-1], "\r"))
		if out.Len()+len(line) > most {
			if n == from { // one line that is too long by itself
				out.WriteString(strings.ToValidUTF8(line[:most], "") + "…\n")
				n++
			}
			break
		}
		out.WriteString(line)
	}
	res.Text = out.String()
	if n <= to {
		res.Truncated, res.NextStartLine, res.NextEndLine = true, n, to
	}
	return tool.Success(res)
}

// list shows a folder: folders first, hidden ones left out.
func (f *files) list(a readArgs) tool.Envelope {
	depth := a.MaxDepth
	if depth <= 0 {
		depth = 3
	}
	place, err := f.roots.At(a.Path, false)
	if err != nil {
		return tool.Failure(tool.KindExecutionError, "%s cannot be listed: %v", a.Path, err)
	}
	defer place.Close()
	res := listing{Kind: "listing", Path: a.Path, Entries: []entry{}}
	var walk func(rel, shown string, depth int)
	walk = func(rel, shown string, depth int) {
		found, err := fs.ReadDir(place.FS(), filepath.ToSlash(rel))
		if err != nil {
			return // a folder that may not be read is shown without its content
		}
		found = slices.DeleteFunc(found, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
		slices.SortStableFunc(found, func(a, b fs.DirEntry) int {
			switch {
			case a.IsDir() == b.IsDir():
				return strings.Compare(a.Name(), b.Name())
			case a.IsDir():
				return -1
			}
			return 1
		})
		for i, e := range found {
			if len(res.Entries) >= maxEntries || (i >= maxPerFolder && shown != a.Path) {
				res.Truncated = true
				return
			}
			at := entry{e.Name(), path.Join(filepath.ToSlash(shown), e.Name()), "file"}
			if e.IsDir() {
				at.Type = "directory"
			}
			res.Entries = append(res.Entries, at)
			if e.IsDir() && depth > 1 {
				walk(filepath.Join(rel, e.Name()), at.Path, depth-1)
			}
		}
	}
	walk(place.Rel, a.Path, depth)
	res.EntryCount = len(res.Entries)
	return tool.Success(res)
}

// missing looks for files of the same name in the working folder.
func (f *files) missing(wanted string, bad *tool.PathError) tool.Envelope {
	root, err := os.OpenRoot(f.roots.Workdir())
	if err != nil {
		return bad.Envelope()
	}
	defer root.Close()
	var found []string
	visited := 0
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if visited++; visited > maxVisited || len(found) >= maxCandidates {
			return fs.SkipAll
		}
		if err != nil {
			return fs.SkipDir
		}
		if !d.IsDir() && strings.EqualFold(d.Name(), filepath.Base(wanted)) {
			found = append(found, p)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return bad.Envelope()
	}
	return tool.Failure(tool.KindNotFound, "%s; files of that name: %s", bad.Message, strings.Join(found, ", ")).WithField("path", "one of "+strings.Join(found, ", "))
}
