package file

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	"rouse/agent/tool"
)

//go:embed write.md
var writeText string

// Limits of file_write (OSA-32).
const (
	maxContent   = 30_000
	maxDiffLines = 80
	maxDiffChars = 12_000
)

// structured are files that a text would break.
var structured = map[string]bool{".xlsx": true, ".xls": true, ".xlsm": true, ".ods": true, ".pdf": true, ".pptx": true, ".ppt": true, ".odp": true,
	".docx": true, ".doc": true, ".odt": true, ".zip": true, ".gz": true, ".png": true, ".jpg": true, ".jpeg": true, ".gif": true, ".db": true, ".sqlite": true}

type writeArgs struct {
	Path    string `json:"path" jsonschema:"relative to the working folder, or absolute inside a folder granted for writing"`
	Content string `json:"content" jsonschema:"at most 30,000 characters"`
	Mode    string `json:"mode,omitempty" jsonschema:"overwrite (default) or append"`
	DryRun  bool   `json:"dry_run,omitempty" jsonschema:"show the difference and change nothing"`
}

type writeResult struct {
	Path    string `json:"path"`
	Created bool   `json:"created"`
	Bytes   int    `json:"bytes"`
	Diff    string `json:"diff"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

func (f *files) write(_ context.Context, _ tool.Invocation, a writeArgs) (tool.Envelope, error) {
	if n := utf8.RuneCountInString(a.Content); n > maxContent {
		return tool.Failure(tool.KindInvalidArgs, "the content has %d characters; write at most %d at once and append the rest", n, maxContent).WithField("content", ""), nil
	}
	if ext := strings.ToLower(filepath.Ext(a.Path)); structured[ext] {
		return tool.Failure(tool.KindRejected, "a %s file is not text; write .txt, .md or .csv instead", ext), nil
	}
	place, err := f.roots.At(a.Path, true)
	if err != nil {
		return refused(a.Path, err), nil
	}
	defer place.Close()
	old, exists, err := current(place, a.Path)
	if err != nil {
		return refused(a.Path, err), nil
	}
	text := a.Content
	if a.Mode == "append" {
		text = old + a.Content
	}
	res := writeResult{Path: a.Path, Created: !exists, Bytes: len(text), Diff: diff(a.Path, old, text), DryRun: a.DryRun}
	if a.DryRun {
		return tool.Success(res), nil
	}
	if err := replace(place, text); err != nil {
		return refused(a.Path, tool.Explain(a.Path, err)), nil
	}
	return tool.Success(res), nil
}

func refused(path string, err error) tool.Envelope {
	var bad *tool.PathError
	if errors.As(err, &bad) {
		return bad.Envelope()
	}
	return tool.Failure(tool.KindExecutionError, "%s cannot be written: %v", path, err)
}

// current reads what is there now.
func current(p *tool.Place, shown string) (string, bool, error) {
	file, err := p.Open(p.Rel)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, tool.Explain(shown, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", false, err
	}
	if info.IsDir() {
		return "", false, &tool.PathError{Kind: tool.KindInvalidArgs, Message: shown + " is a folder"}
	}
	if err := tool.CheckLinks(shown, info); err != nil {
		return "", false, err
	}
	if info.Size() > maxRaw {
		return "", false, &tool.PathError{Kind: tool.KindRejected, Message: fmt.Sprintf("%s has %d bytes, more than the %d that can be changed", shown, info.Size(), maxRaw)}
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return "", false, err
	}
	if !utf8.Valid(text) {
		return "", false, &tool.PathError{Kind: tool.KindRejected, Message: shown + " is not a text file, and was left as it is"}
	}
	return string(text), true, nil
}

// replace makes the file whole before it takes its name, so no reader sees half of it.
func replace(p *tool.Place, text string) (err error) {
	if dir := filepath.Dir(p.Rel); dir != "." {
		if err := p.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	mode := os.FileMode(0o644)
	if info, err := p.Stat(p.Rel); err == nil {
		mode = info.Mode().Perm()
	}
	temp := filepath.Join(filepath.Dir(p.Rel), ".rouse-"+rand.Text()+".tmp")
	file, err := p.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = p.Rename(temp, p.Rel)
	}
	if err != nil {
		return errors.Join(err, p.Remove(temp))
	}
	return nil
}

// diff shows what changes, cut to a readable size.
func diff(path, old, text string) string {
	d := udiff.Unified("a/"+filepath.ToSlash(path), "b/"+filepath.ToSlash(path), old, text)
	lines := strings.SplitAfter(d, "\n")
	if len(lines) > maxDiffLines {
		d = strings.Join(lines[:maxDiffLines], "") + fmt.Sprintf("… %d more lines\n", len(lines)-maxDiffLines)
	}
	if len(d) > maxDiffChars {
		d = strings.ToValidUTF8(d[:maxDiffChars], "") + "…\n"
	}
	return d
}
